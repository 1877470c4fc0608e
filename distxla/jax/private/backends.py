"""The private names of JAX that only the plugin uses: of JAX's clients, its settings, and how it compiles.

They are looked up like those of names.py, and move from release to release like them.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from distxla.errors import JaxError
from distxla.jax.private.coordination import alone, make_client
from distxla.jax.private.names import expected_names, jax_module, private, require_jaxlib
from distxla.lazy_dataclass import dataclass

PLUGIN_TESTED: Final = ((0, 10), (0, 12))  # jaxlib, first and last


def require_plugin_versions() -> None:
    """JaxError where jaxlib's C interface is not known to be the plugin's."""
    version = require_jaxlib("the plugin")
    parts = version.split(".")
    numbers = tuple(int(part) if part.isdecimal() else 0 for part in parts[:2])
    first, last = PLUGIN_TESTED
    if not first <= numbers <= last:
        between = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
        raise JaxError(f"jaxlib {version}: distxla's plugin is tested with {between}, whose PJRT interface it has")


def _xla_bridge() -> Any:
    return jax_module("jax._src.xla_bridge")


def wanted_platforms() -> tuple[str, ...]:
    """The platforms that JAX_PLATFORMS, or the user's configuration, names; none where it leaves them open."""
    bridge = _xla_bridge()
    with expected_names():
        return tuple(name.strip() for name in (bridge.config.jax_platforms.value or "").split(","))


def is_plugin_registered(name: str) -> bool:
    """Whether JAX knows a backend of this name."""
    bridge = _xla_bridge()
    with expected_names():
        return name in bridge._backend_factories


def are_backends_initialized() -> bool:
    """Whether JAX has made its clients, after which its platforms cannot change."""
    bridge = _xla_bridge()
    with expected_names():
        return bool(bridge.backends_are_initialized())


def live_clients() -> list[Any]:
    """The clients that JAX has made; imports nothing."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return list(getattr(bridge, "_backends", {}).values())


def set_platforms(names: str) -> None:
    """What JAX_PLATFORMS says, from now on."""
    bridge = _xla_bridge()
    with expected_names():
        bridge.config.update("jax_platforms", names)


_CALLERS: Final = ("asyncio/", "concurrent/", "contextlib.py", "functools.py", "threading.py")


def tell_lines_of_calls(packages: Iterable[str]) -> None:
    """Have JAX tell with each call at which line of the user's it is made, unless it tells more: 0.5 us a call.
    packages: whose lines are not the user's, beside those of Python's own that call functions."""
    jax, traces = jax_module("jax"), jax_module("jax._src.traceback_util")
    installed = Path(jax.__file__).parent.parent
    folders = [f"{installed / name}/" for name in packages if (installed / name).is_dir()]
    with expected_names():
        for begin in (*folders, *(f"{Path(threading.__file__).parent}/{name}" for name in _CALLERS)):
            traces._jax.add_exclude_path(begin)
        if jax.config.jax_send_traceback_to_runtime == "off":
            jax.config.update("jax_send_traceback_to_runtime", "on")


def around_compilation(around: Callable[[str, Sequence[Callable[..., Any]], Callable[[], Any]], Any]) -> None:
    """From now on JAX compiles each module by around(version of its platform, functions behind its callbacks, how)."""
    compiler: Any = importlib.import_module("jax._src.compiler")
    with expected_names():
        compile_ = compiler.backend_compile_and_load
        importlib.import_module("jax._src.traceback_util").register_exclusion(__file__)  # as JAX's own frames
    signature = inspect.signature(compile_)

    @functools.wraps(compile_)
    def within(*args: Any, **options: Any) -> Any:
        given = signature.bind(*args, **options).arguments
        how = functools.partial(compile_, *args, **options)
        return around(given["backend"].platform_version, given["host_callbacks"], how)

    compiler.backend_compile_and_load = within


def configured_devices() -> int | None:
    """The number of CPU devices by jax_num_cpu_devices or JAX_NUM_CPU_DEVICES; None where neither is set."""
    bridge = _xla_bridge()
    with expected_names():
        found = int(bridge.num_cpu_devices.value)
    return None if found < 0 else found


_COMPILING: Final = (
    "jax_allow_f16_reductions",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_disable_jit",
    "jax_enable_custom_prng",
    "jax_enable_x64",
    "jax_legacy_prng_key",
    "jax_numpy_dtype_promotion",
    "jax_optimization_level",
    "jax_random_seed_offset",
    "jax_softmax_custom_jvp",
    "jax_threefry_partitionable",
    "jax_use_shardy_partitioner",
)


def compiling_options() -> dict[str, Any]:
    """JAX's options that change what a function is compiled to, as JSON has them; those that this version has."""
    bridge = _xla_bridge()
    with expected_names():
        values = dict(bridge.config.config.values)
    plain = (bool, int, float, str, type(None))
    found = {name: values[name] for name in _COMPILING if name in values}
    return {name: value if isinstance(value, plain) else str(value) for name, value in found.items()}


@dataclass(frozen=True)
class Names:
    """plugin: the backend's.  platform: that of JAX which means the plugin's devices where the plugin is chosen.  own:
    the name that JAX's own client of this platform has then."""

    plugin: str
    platform: str
    own: str


def is_plugin_chosen(name: str) -> bool:
    """Whether JAX takes the plugin, once it is registered: it comes first where JAX_PLATFORMS leaves it open."""
    return not {name, ""}.isdisjoint(wanted_platforms())


def register_plugin(names: Names, capsule: Any, priority: int, not_chosen: Callable[[], object]) -> None:
    """Register a backend by its PJRT_Api.

    capsule: a PyCapsule of it.  not_chosen: called when JAX makes its own client of the platform, since its
    configuration now names that platform alone.
    """
    bridge = _xla_bridge()
    with expected_names():
        bridge._nonexperimental_plugins.add(names.plugin)  # no notice at each start
        register = bridge.register_plugin
        factories = bridge._backend_factories
        replaced = factories[names.platform]
        make_own = replaced.factory

    def plugin() -> Any:
        with expected_names():
            backends = bridge._backends  # another dictionary after each clear_backends
        if names.plugin not in backends:
            backends[names.plugin] = backends[names.platform] = make_client(names.plugin)
            with alone():
                backends[names.own] = make_own()
            for hook in getattr(bridge, "_backend_initialization_hooks", ()):  # as _init_backend does; not in JAX 0.12
                hook(backends[names.own])
        return backends[names.plugin]

    def client() -> Any:
        if is_plugin_chosen(names.plugin):
            return plugin()
        not_chosen()
        return make_own()

    register(names.plugin, priority=priority, c_api=capsule, factory=plugin)
    factories[names.platform] = dataclasses.replace(replaced, factory=client)
    _let_callbacks_compute_on_own_devices(bridge, names)


def _module_of(proto: bytes) -> Any:
    make = private("XlaComputation")
    with expected_names():
        return make(proto).get_hlo_module()


def cost_analysis(own: str, proto: bytes) -> dict[str, float]:
    """What XLA estimates that an HloModuleProto costs, by property. own: JAX's client, whose estimates these are."""
    bridge, analyse = _xla_bridge(), private("hlo_module_cost_analysis")
    with expected_names():
        return dict(analyse(bridge.backends()[own], _module_of(proto)))


def estimate_costs_of_lowered(is_ours: Callable[[str], bool], own: str) -> None:
    """From now on `jax.stages.Lowered.cost_analysis` has estimates for a plugin's platform, too.

    is_ours: whether a platform is, by its version.  own: as of `cost_analysis`.
    """
    with expected_names():
        computation: Any = jax_module("jax._src.interpreters.pxla").MeshComputation
        analyse = computation.cost_analysis

    @functools.wraps(analyse)
    def analysed(self: Any) -> Any:
        with expected_names():
            backend = self.compile_args["backend"]
        if not is_ours(backend.platform_version):
            return analyse(self)
        with expected_names():
            return cost_analysis(own, self.hlo().as_serialized_hlo_module_proto())

    computation.cost_analysis = analysed


def _let_callbacks_compute_on_own_devices(bridge: Any, names: Names) -> None:
    """What callbacks compute runs while the plugin's devices wait for them."""

    class Bridge:
        """jax._src.xla_bridge as the modules of callbacks see it."""

        def __getattr__(self, name: str) -> Any:
            return getattr(bridge, name)

        def local_devices(self, process_index: int | None = None, backend: Any = None) -> Any:
            is_beside = backend == names.platform and names.own in bridge.backends()
            return bridge.local_devices(process_index, names.own if is_beside else backend)

    for module, name in (("callback", "xb"), ("debugging", "xla_bridge")):
        found = jax_module(f"jax._src.{module}")
        with expected_names():
            if getattr(found, name) is not bridge:
                raise AttributeError(f"jax._src.{module}.{name} is not jax._src.xla_bridge")
        setattr(found, name, Bridge())


__all__ = [
    "PLUGIN_TESTED",
    "Names",
    "are_backends_initialized",
    "around_compilation",
    "configured_devices",
    "cost_analysis",
    "estimate_costs_of_lowered",
    "is_plugin_chosen",
    "is_plugin_registered",
    "live_clients",
    "register_plugin",
    "require_plugin_versions",
    "set_platforms",
    "wanted_platforms",
]
