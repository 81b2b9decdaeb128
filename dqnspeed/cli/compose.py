"""From Hydra's configuration to plain dataclasses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_type_hints

import hydra
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict

from dqnspeed.cli import plugins
from dqnspeed.config import changes
from dqnspeed.config.combinations import check
from dqnspeed.config.options import ConfigError, nearest
from dqnspeed.config.registry import FOLDERS, GROUPS, class_of, names_of
from dqnspeed.config.schema import RunConfig
from dqnspeed.envs.games import rom_of

_PACKAGE = Path(__file__).resolve().parents[1]
CONF_DIR = str(_PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf")


def register() -> None:
    """Give Hydra the schemas, the resolvers and the options without a file of their own that plugins bring.

    What is wrong with the options of a plugin is told in one sentence, and they are left out.
    """
    for name, resolver in _RESOLVERS.items():
        OmegaConf.register_new_resolver(name, resolver, replace=True)
    _tell_shadowed_files()
    store = ConfigStore.instance()
    store.store(name="schema", node=schema())
    for group, known in GROUPS.items():
        for name, option in list(known.options.items()):
            try:
                node = _writable(option)
                if not _is_ours(option) and Path(CONF_DIR, group, f"{name}.yaml").is_file():
                    raise ConfigError("dqnspeed has a file of this name")
            except Exception as error:  # whatever OmegaConf says of a type that it does not know
                if _is_ours(option):
                    raise
                del known.options[name]
                reason = str(error).splitlines()[0].rstrip(".")
                plugins.tell(f"plugin {option.__module__}: {group}={name} is left out: {reason}.")
                continue
            store.store(group=f"{group}_schema", name=name, node=node)
            if name != known.fallback and not _has_file(group, name):
                store.store(group=group, name=name, **_without_file(group, name, option))


def _is_ours(option: type) -> bool:
    return option.__module__.partition(".")[0] == "dqnspeed"


def _has_file(group: str, name: str) -> bool:
    return any((folder / group / f"{name}.yaml").is_file() for folder in (Path(CONF_DIR), *FOLDERS))


def _tell_shadowed_files() -> None:
    """Tell the files of plugins that are never read, since a folder that is searched before has one of that name."""
    for i, folder in enumerate(FOLDERS):
        for path in sorted(path.relative_to(folder) for path in folder.rglob("*.yaml")):
            if first := next((above for above in (Path(CONF_DIR), *FOLDERS[:i]) if (above / path).is_file()), None):
                plugins.tell(f"plugin file {folder / path}: is not used, since {first / path} has its name.")


def _without_file(group: str, name: str, option: type) -> dict[str, Any]:
    """An option that is no more than a class: the numbers of another that has a file, and the defaults of its own.

    Options of ``algo`` are global packages, which may set what lies outside their group.
    """
    parent, own = _parent(group, option)
    declared = {key for kind in own for key in vars(kind).get("__annotations__", {})}
    values: dict[str, Any] = {"name": name}
    for f in fields(option):
        if f.name in declared and f.default is not MISSING:
            values[f.name] = f.default
        elif f.name in declared and f.default_factory is not MISSING:
            values[f.name] = f.default_factory()
    at = f"{group}_schema@{group if group == 'algo' else '_here_'}"
    defaults = [{f"/{at}": name}] if parent is None else [parent, {f"override /{at}": name}]
    node = {"defaults": [*defaults, "_self_"], **({"algo": values} if group == "algo" else values)}
    return {"node": node, "package": "_global_" if group == "algo" else group}


def _parent(group: str, option: type) -> tuple[str | None, list[type]]:
    """The option with a file whose numbers ``option`` takes, and the classes whose numbers it does not bring.

    It is the nearest that ``option`` is derived from, else the default of the group where all its numbers are shared.
    """
    classes = list(option.__mro__)
    for i, kind in enumerate(classes[1:], 1):
        for name in names_of(kind, group):
            if _has_file(group, name):
                return name, classes[:i]
    usual = _defaults()[group]
    shared = {f.name for f in fields(class_of(group, usual))} <= {f.name for f in fields(option)}
    return (usual if shared else None), classes


@cache
def _defaults() -> dict[str, str]:
    """The option of each group that is chosen where none is given."""
    chosen = OmegaConf.load(f"{CONF_DIR}/config.yaml").defaults
    return {str(group): str(name) for entry in chosen if isinstance(entry, DictConfig) for group, name in entry.items()}


def schema(chosen: DictConfig | None = None) -> DictConfig:
    """The schema as OmegaConf sees it, with every value missing.

    Args:
        chosen: a configuration; each group has the schema of the option that its ``name`` says. Without it, a group has
            what all its options share.

    Raises:
        ConfigError: a name is nobody's.
    """
    root = _writable(RunConfig)
    for name, kind in get_type_hints(RunConfig).items():
        if not is_dataclass(kind):
            continue
        if chosen is not None and name in GROUPS:
            kind = class_of(name, (chosen.get(name) or {}).get("name"))
        root[name] = _writable(kind)
        if chosen is None and name in GROUPS:
            # A file of the user's own need not name its schema, and what no option has is refused once all is composed.
            OmegaConf.set_struct(root[name], False)
    root.env.kwargs = {}
    OmegaConf.set_struct(root.env.kwargs, False)  # any keyword an environment of the user's own may take
    return root


def keys() -> list[str]:
    """Every group, scalar and ``group.key`` of all schemas."""
    found = dict.fromkeys(_keys_of(schema()))
    for group, known in GROUPS.items():
        found |= dict.fromkeys(f"{group}.{f.name}" for option in known.options.values() for f in fields(option))
    return list(found)


def _keys_of(root: DictConfig) -> list[str]:
    found = list[str]()
    for name in map(str, root):
        node = root._get_node(name)
        below = list(node) if isinstance(node, DictConfig) and not node._is_none() else []
        found += [name, *(f"{name}.{key}" for key in below)]
    return found


def unknown(key: str, chosen: str | None = None) -> str:
    """What to say of a ``key`` that does not exist, after a colon.

    Args:
        chosen: the option of the key's group that lacks it.
    """
    group, _, leaf = key.partition(".")
    options = GROUPS[group].options if group in GROUPS else {}
    owners = [name for name, option in options.items() if leaf in {f.name for f in fields(option)}]
    if chosen is None or not owners:
        return f"there is no such option{nearest(key, keys())}"
    return f"there is no such option of {group}={chosen}; it belongs to {group}={', '.join(owners)}"


def option_list() -> str:
    """A line a group: its options, as ``--help`` shows them."""
    loader = GlobalHydra.instance().config_loader()
    groups = [group for group in loader.list_groups("") if group != "hydra" and not group.endswith("_schema")]
    return "\n".join(f"{group}: {', '.join(loader.get_group_options(group))}" for group in groups)


def bound_of(env_id: str, pong: float | None = None) -> float | None:
    """The mean return at which a game counts as solved, by ``conf/reward_bounds.yaml``; ``None`` where none is known.

    Args:
        pong: what Pong's bound is instead.
    """
    game = rom_of(str(env_id)) or env_id
    return pong if game == "pong" and pong is not None else _bounds().get(game)


_RESOLVERS: dict[str, Callable[..., Any]] = {
    "mul": lambda *factors: math.prod(factors),
    "tenth": lambda steps, usual: max(1, (usual if steps is None else steps) // 10),  # of a run, or of the usual one
    "unless": lambda given, value: value if given is None else None,
    "bound_of": bound_of,
    "option_list": option_list,
}


@cache
def _bounds() -> dict[str, float]:
    return cast("dict[str, float]", OmegaConf.to_container(OmegaConf.load(f"{CONF_DIR}/reward_bounds.yaml")))


def _writable(kind: Any) -> DictConfig:
    # OmegaConf makes the node of a frozen dataclass read-only, which would stop Hydra from composing it.
    node: DictConfig = OmegaConf.structured(kind)
    OmegaConf.set_readonly(node, None)
    return node


def from_hydra(cfg: DictConfig) -> RunConfig:
    """Turn a composed configuration into plain frozen dataclasses, checked.

    Raises:
        ConfigError: an option is unknown, or a value missing, out of range, or at odds with another.
    """
    own = copy.copy(cfg)
    with open_dict(own):
        own.pop("hydra", None)
    plain = cast("dict[str, Any]", OmegaConf.to_container(own))  # without the types it was composed with
    own = OmegaConf.create(plain)
    root = schema(own)
    known = _keys_of(root)
    for key in _keys_of(own):
        if key not in known:
            raise ConfigError(_refused(key, plain))
    run = OmegaConf.to_object(OmegaConf.merge(root, own))
    assert isinstance(run, RunConfig)
    check(run)
    return run


def _refused(key: str, plain: dict[str, Any]) -> str:
    group, _, leaf = key.partition(".")
    if group not in GROUPS:
        return f"{key}: {unknown(key)}."
    rung = (plain.get("experiment") or {}).get("name")
    source = "" if rung in (None, _defaults()["experiment"]) else f" (experiment={rung} may bring it)"
    return f"{key}={plain[group][leaf]}{source}: {unknown(key, plain[group].get('name'))}."


def upgraded(stored: DictConfig, defaults: DictConfig) -> DictConfig:
    """The configuration of a run that was begun earlier, maybe by another version, as this version would have it.

    Args:
        defaults: values of options that are newer than the run.

    Raises:
        ConfigError: it names an option that is not to be had here.
    """
    stored = copy.deepcopy(stored)
    for group, known in GROUPS.items():
        node = stored.get(group)
        if not isinstance(node, DictConfig):
            continue
        name = node.setdefault("name", known.fallback)
        shared = {f.name for kind in known.options.values() for f in fields(kind)}
        label = known.fallback is not None and (_has_file(group, name) or all(key in shared for key in node))
        if name not in known.options and not label:
            raise ConfigError(
                f"{group}={name}: the run was begun with this option of a plugin that is not here; install it, or name "
                f"its module in {plugins.VARIABLE}."
            )
        option, usual = class_of(group, name), known.options.get(known.fallback or "")
        if usual and _names(option) - set(node) and _names(usual) <= set(node):
            option, node.name = usual, known.fallback  # the run's own label, which is the name of an option by now
        for key in shared - _names(option):
            node.pop(key, None)  # the number of another option, that of a version where all had all
        default = defaults.get(group)
        if isinstance(default, DictConfig) and OmegaConf.get_type(default) is not option:
            kept = {key: default._get_node(key) for key in map(str, default) if key in _names(option)}
            defaults = copy.deepcopy(defaults)
            defaults[group] = _writable(option)
            defaults[group].update(kept)
    return cast("DictConfig", OmegaConf.merge(defaults, stored))


def _names(option: type) -> set[str]:
    return {f.name for f in fields(option)}


def changed(run: RunConfig, overrides: Iterable[str]) -> set[str]:
    """The keys that ``run`` gives other values than its rung does; those that ``overrides`` name where the file of the
    rung is not to be found, as that of a user's own when a run is resumed."""
    rung = _rung(run.experiment.name)
    return changes.keys_of(overrides) if rung is None else changes.differences(run, rung)


def _rung(name: str) -> RunConfig | None:
    overrides = [f"experiment={name}"]
    try:
        if GlobalHydra.instance().is_initialized():
            loader = GlobalHydra.instance().config_loader()
            return from_hydra(loader.load_configuration("config", overrides, RunMode.RUN))
        with hydra.initialize_config_dir(CONF_DIR, version_base="1.3"):
            return from_hydra(hydra.compose("config", overrides=overrides))
    except (ConfigError, HydraException):
        return None


plugins.load()
register()
