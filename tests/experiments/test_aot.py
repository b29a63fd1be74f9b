import importlib.util
import json
import os
import subprocess
import sys

import jax
import pytest

from conductor_jax.config import default_config
from conductor_jax.errors import UserError
from conductor_jax.training.hardware import find_accelerator
from configs import quickstart
from experiments import aot as aot_module
from experiments import topology as topology_module
from experiments.aot import compile_memory, lower_step, measure, step_shapes
from experiments.policy import abstract_policy, open_mesh
from experiments.topology import Topology, find_topology
from tests.experiments.small_run import ROOT

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="libtpu, the TPU compiler, is not installed")
needs_cuda = pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="JAX's CUDA plugin, the compiler for NVIDIA GPUs and 3 GB with it, is not installed")

SMALL = (
    "--config.model.hidden_size=32", "--config.model.intermediate_size=64",
    "--config.model.num_heads=2", "--config.model.num_kv_heads=1", "--config.model.head_dim=16",
    "--config.model.remat=full", "--config.tokenizer.vocab_size=512", "--config.grpo.prompts=4",
    "--config.grpo.group_size=2", "--config.grpo.kl_coefficient=0.0", "--config.sft.prompts=4",
    "--config.rollout.max_prompt_tokens=16", "--config.rollout.max_completion_tokens=8")
# Two layers of 32 · (2 · 32 + 2 · 16 + 3 · 64) weights, 64 biases and 64 scales, embedding, head
# and the last norm.
PARAMETERS = 2 * (32 * 288 + 64 + 64) + 2 * 512 * 32 + 32


def aot(*options):
  # Nothing of this process's JAX settings: the program makes its own.
  environment = {name: value for name, value in os.environ.items()
                 if not name.startswith(("XLA_", "JAX_", "TPU_"))}
  return subprocess.run(
      [sys.executable, "-m", "experiments.aot", "--config=configs/quickstart.py", *SMALL, *options],
      cwd=ROOT, env=environment, text=True, capture_output=True, timeout=300)


class Refused:
  """A lowered step whose compilation fails with a message."""

  def __init__(self, message):
    self._message = message

  def compile(self):
    raise jax.errors.JaxRuntimeError(self._message)


@pytest.mark.parametrize("name", ["v9:2x2", "v5e", "v5e:", "v5e:2xx2", "h100:2x2", "4x4", ""])
def test_an_unknown_topology_is_refused_with_examples(name):
  expected = rf"^--topology={name}: must be .* such as v5e:4x4 .* h100:8$"
  with pytest.raises(UserError, match=expected):
    find_topology(name)


@pytest.mark.parametrize("count", [0, 9, 12])
def test_gpus_come_in_whole_hosts_of_eight(count):
  with pytest.raises(UserError, match=f"--topology=h100:{count}: must be up to 8 GPUs"):
    find_topology(f"h100:{count}")


def test_a_missing_compiler_is_named_with_its_installation(monkeypatch):
  def missing(**options):
    raise NotImplementedError(f"topology not implemented for {options['platform']}")

  monkeypatch.setattr(topology_module.importlib.util, "find_spec", lambda name: None)
  monkeypatch.setattr(topology_module.topologies, "get_topology_desc", missing)
  with pytest.raises(UserError, match=r'libtpu.*is not installed: pip install -e "\.\[tpu-aot\]"'):
    find_topology("v5e:2x2")
  with pytest.raises(UserError, match=r'CUDA.*is not installed: pip install -e "\.\[cuda12\]"'):
    find_topology("h100:2")


def test_a_mesh_of_another_size_is_refused():
  config = default_config()
  config.mesh.update(fsdp=4, tensor=2)
  with pytest.raises(UserError, match=(
      "--config.mesh: mesh data=1 × fsdp=4 × tensor=2 needs 8 devices, and there are 16: set, for "
      "example, --config.mesh.fsdp to the number of devices")):
    open_mesh(config, [jax.devices()[0]] * 16)


@pytest.mark.parametrize("message", [
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory "
    "required for HLO temporaries (20.95G) exceeds available HBM (15.75G). HLO module: jit_step.",
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 20.95G of 15.75G hbm. "
    "Exceeded hbm capacity by 5.20G."])
def test_the_compilers_figure_is_read_from_its_refusal(message):
  memory = compile_memory(Refused(message))
  assert memory["peak"] == round(20.95 * 2**30)
  assert memory["temporaries"] is None


def test_a_refusal_without_a_figure_still_counts_as_out_of_memory():
  assert compile_memory(Refused("RESOURCE_EXHAUSTED: no more"))["peak"] is None


def test_any_other_fault_of_the_compiler_is_raised():
  with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
    compile_memory(Refused("INTERNAL: bug"))


@pytest.fixture(scope="module")
def recursive():
  """A config of which every second question has a second round, and its policy in shapes."""
  config = quickstart.get_config()
  config.model.update(dict(hidden_size=32, intermediate_size=64, num_heads=2, num_kv_heads=1,
                           head_dim=16, remat="full"))
  config.tokenizer.vocab_size, config.workflow.max_rounds = 512, 2
  config.grpo.update(dict(prompts=4, group_size=4, kl_coefficient=0.0))
  config.grpo.recursion.update(dict(share=0.5, micro_batches=2))
  config.rollout.update(dict(max_prompt_tokens=72, max_completion_tokens=8))
  return config, abstract_policy(config, open_mesh(config))


def test_second_rounds_are_rows_of_one_rollout_with_prompts_of_few_widths(recursive):
  config, policy = recursive
  first, later = step_shapes(config, policy)
  assert (first.rows, first.samples, first.prompt, first.micro_batches) == (4, 4, 72, 1)
  assert (later.rows, later.samples, later.prompt, later.micro_batches) == (2 * 4, 1, 128, 2)
  assert later.completion == first.completion == 8
  alone = config.copy_and_resolve_references()
  alone.grpo.recursion.share = 0.0
  assert step_shapes(alone, policy) == [first]


def test_all_programs_of_a_step_on_second_rounds_are_compiled_and_the_largest_must_fit(
    recursive, monkeypatch):
  config, policy = recursive
  shapes = step_shapes(config, policy)
  memories = [compile_memory(lowered) for lowered in lower_step(config, policy, shapes)]
  begin, go_on, finish = (memory["peak"] for memory in memories)
  # Weights, two moments and the gradient lie there at every moment.
  assert min(begin, go_on, finish) > 4 * 4 * PARAMETERS
  # The last one has no activations; the second one has those of other rows than the first.
  assert finish < min(begin, go_on) and begin != go_on
  topology = Topology("cpu", find_accelerator("TPU v5 lite"), jax.devices()[:1], 2**30)
  values = measure(config, topology)
  assert values["peak_gib"] == round(max(begin, go_on, finish) / 2**30, 6)
  assert (values["rows"], values["later_rows"], values["fits"]) == (4, 8, True)
  assert values["model_flops"] == shapes[0].model_flops() + shapes[1].model_flops()
  # One that needs more than the compiler could say is the largest.
  asked = iter([memories[0], {name: None for name in memories[1]}, memories[2]])
  monkeypatch.setattr(aot_module, "compile_memory", lambda lowered: next(asked))
  values = measure(config, topology)
  assert (values["peak_gib"], values["fits"]) == (None, False)


@needs_libtpu
def test_a_step_on_second_rounds_is_compiled_for_tpus():
  result = aot("--topology=v5e:2x2", "--config.mesh.fsdp=4", "--config.grpo.group_size=4",
               "--config.workflow.max_rounds=2", "--config.grpo.recursion.share=0.5", "--json")
  assert result.returncode == 0, result.stderr
  values = json.loads(result.stdout)
  assert (values["rows"], values["later_rows"], values["fits"]) == (4, 8, True)
  assert values["peak_gib"] > 4 * 4 * PARAMETERS / 4 / 2**30


@needs_libtpu
def test_a_step_is_compiled_for_tpus_that_are_not_there():
  result = aot("--topology=v5e:2x2", "--config.mesh.fsdp=4", "--json")
  assert result.returncode == 0, result.stderr
  line, = result.stdout.splitlines()
  values = json.loads(line)
  assert values["fits"] is True
  assert values["parameters"] == PARAMETERS
  assert (values["devices"], values["device_kind"]) == (4, "TPU v5 lite")
  assert values["mesh"] == {"data": 1, "fsdp": 4, "tensor": 1}
  assert values["capacity_gib"] == 15.75
  # Weights and two moments in float32, split over four devices, and not much more.
  state = 3 * 4 * PARAMETERS / 4 / 2**30
  assert state < values["arguments_gib"] < 3 * state
  assert state < values["aliased_gib"] <= values["outputs_gib"]
  assert values["peak_gib"] == pytest.approx(
      values["arguments_gib"] + values["temporaries_gib"] + values["outputs_gib"]
      - values["aliased_gib"], abs=1e-5)
  assert values["model_flops"] < values["hardware_flops"]


@needs_libtpu
def test_adapters_and_micro_batches_are_part_of_what_is_compiled():
  # Four devices: each a row of two samples in each of two micro-batches.
  result = aot("--topology=v5e:2x2", "--config.mesh.fsdp=4", "--config.model.lora_rank=4",
               "--config.grpo.group_size=4", "--config.grpo.samples_per_row=2",
               "--config.grpo.micro_batches=2", "--config.model.param_dtype=bfloat16", "--json")
  assert result.returncode == 0, result.stderr
  values = json.loads(result.stdout)
  assert (values["rows"], values["samples"], values["micro_batches"]) == (8, 2, 2)
  assert (values["prompt"], values["completion"]) == (16, 8)
  assert values["attention"] == "blockwise"  # heads of 16 are no whole lanes
  # 8 rows of 16 + 2 · 8 tokens, 128 of them of completions, which see 8 · 136 + 16 · 164 others.
  # Frozen kernels: forward and the gradient of their inputs. Rank 4 on 2 layers, inputs and outputs
  # add up to 512: forward and both gradients.
  frozen = 2 * (2 * 2 * 32 * 288 * 256 + 2 * 32 * 512 * 128)
  attention = 3 * 4 * 2 * 32 * (8 * 136 + 16 * 164)
  assert values["model_flops"] == frozen + attention + 3 * 2 * (2 * 4 * 512) * 256


@needs_libtpu
def test_a_step_that_does_not_fit_is_one_line_and_status_1():
  result = aot("--topology=v5e:2x2", "--config.mesh.fsdp=4", "--config.model.hidden_size=4096",
               "--config.model.intermediate_size=1048576")
  assert result.returncode == 1
  # 25.8 G weights and their moments, over four devices.
  line, = result.stderr.splitlines()
  needed = float(line.split("not fit: ")[1].split(" GiB")[0])
  assert needed > 3 * 4 * 2 * 3 * 4096 * 1048576 / 4 / 2**30
  assert line == (f"v5e:2x2: does not fit: {needed:.2f} GiB is needed on each device, and "
                  "15.75 GiB can be had")
  assert "fits" in result.stdout


@needs_libtpu
def test_a_slice_that_is_not_made_is_refused():
  with pytest.raises(UserError, match=r"--topology=v5e:2x3: there is no such slice .*try v5e:2x2$"):
    find_topology("v5e:2x3")


@needs_libtpu
@pytest.mark.parametrize(("name", "devices", "kind"), [
    ("v5e:1x1", 1, "TPU v5 lite"), ("v5p:2x2x1", 4, "TPU v5"), ("v4:2x2x1", 4, "TPU v4"),
    ("v6e:2x4", 8, "TPU v6 lite")])
def test_a_slices_shape_is_in_chips_and_a_chip_is_one_device(name, devices, kind):
  topology = find_topology(name)
  assert len(topology.devices) == devices
  assert topology.devices[0].device_kind == topology.accelerator.kind == kind


@needs_cuda
def test_a_step_is_compiled_for_gpus_that_are_not_there():
  result = aot("--topology=h100:2", "--config.mesh.fsdp=2", "--json")
  assert result.returncode == 0, result.stderr
  values = json.loads(result.stdout)
  assert values["fits"] is True
  assert values["device_kind"] == "NVIDIA H100 80GB HBM3"
  # The programs let JAX's allocator take 95 % of what the driver reports.
  assert values["capacity_gib"] == pytest.approx(0.95 * 84_942_979_072 / 2**30, abs=1e-3)
  batch = 2 * (16 * 5 + 2 * 8 * (4 + 1 + 4 + 4))
  assert values["arguments_gib"] * 2**30 == pytest.approx(
      3 * 4 * PARAMETERS / 2 + batch, rel=0.05)
