"""A server of ours that fails while it is given weights: it comes back with them."""

import pytest

from tests.sampling.over_a_sync import open_slow, sample_over_a_sync
from tests.sampling.stand_in import GENERATE, arm, ask, asked
from tests.sampling.tiny_policy import moved

# The change of a step that the tolerance for rounding hides.
SMALL = 2e-4


async def test_a_sync_freezes_what_runs_and_lets_it_go_on_with_the_new_weights(tmp_path):
  async with open_slow(tmp_path) as sampler:
    url = sampler.server.url
    began = len(ask(url, "/requests"))
    completions = await sample_over_a_sync(sampler, moved(0.5))
    asked_since = ask(url, "/requests")[began:]
    routes = [each["route"] for each in asked_since]
    assert [route for route in routes if route != GENERATE] == [
        "/pause", "/collective_rpc", "/reset_prefix_cache", "/update_weight_version", "/resume",
        "/weight_info"]
    queries = {each["route"]: each["query"] for each in asked_since}
    assert queries["/pause"] == {"mode": "keep"}
    assert queries["/reset_prefix_cache"] == {"reset_running_requests": "true"}
    # Six before, the probe, and six after: none is asked for twice.
    assert routes.count(GENERATE) == 6 + 1 + 6
    versions = [completion.weight_versions.tolist() for completion in completions]
    assert all(each == sorted(each) for each in versions)
    assert sum(set(each) == {1, 2} for each in versions) >= 4
    assert sampler.said == []
    assert [path.name for path in sampler.folder.glob("step-*")] == ["step-000002"]


@pytest.mark.parametrize("route, kind", [
    ("/pause", "die_after"), ("/collective_rpc", "hang"), ("/collective_rpc", "keep_old_weights"),
    ("/reset_prefix_cache", "reset_fails"), ("/weight_info", "wrong_version")])
async def test_it_is_started_again_with_the_new_weights_after_a_fault(tmp_path, route, kind):
  async with open_slow(tmp_path, sync_timeout=1.0) as sampler:
    arm(sampler.server.url, route, kind)
    await sample_over_a_sync(sampler, moved(SMALL))
    url = sampler.server.url
    assert ask(url, "/is_paused") == {"is_paused": False}
    assert ask(url, "/weight_info")["weight_version"].endswith("/step-000002")
    # A process that has never been given other weights.
    assert asked(url, "/collective_rpc") == 0
    assert len(sampler.said) == 1 and sampler.said[0].endswith(": it is started again")
