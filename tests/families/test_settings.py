"""The command line and the estimators share one set of settings, under one set of names."""

import inspect
from collections.abc import Iterator

import pytest

from partita import estimators
from partita.estimators._density import Density
from partita.families import FAMILIES

# what an estimator derives from its support, and how files of sequences are read
DERIVED = {
    "rbm": {"visible_units"},
    "vae": {"likelihood"},
    "belief": {"likelihood"},
    "autoregressive": {"length", "tokens", "encoding"},
    "vrnn": {"length"},
}
# estimators take any numbers as such, where the command line looks at the table
OTHER_DEFAULT = {
    ("mixture", "component"),
    ("dpmm", "kernel"),
    ("mixture-ppca", "n_init"),  # one start of a mixture of so many parameters
}


def with_family() -> Iterator[type[Density]]:
    for name in estimators.__all__:
        found = getattr(estimators, name)
        if isinstance(found, type) and issubclass(found, Density):
            yield found


@pytest.mark.parametrize("cls", list(with_family()), ids=lambda cls: cls.__name__)
def test_every_setting_of_the_family_is_a_parameter_with_the_same_default(
    cls: type[Density],
) -> None:
    family, parameters = FAMILIES[cls.family], inspect.signature(cls).parameters
    for name, setting in family.settings.items():
        if name in DERIVED.get(family.name, ()):
            continue
        assert name in parameters, f"{cls.__name__} lacks {name} of family {family.name}"
        default = parameters[name].default
        if (family.name, name) not in OTHER_DEFAULT:
            expected = (
                tuple(setting.default) if isinstance(setting.default, list) else setting.default
            )
            assert default == expected, f"{cls.__name__}: {name} is {default!r}, {expected!r} there"


def test_families_have_an_estimator_or_are_a_variant_of_one_that_has() -> None:
    missing = FAMILIES.keys() - {cls.family for cls in with_family()}
    assert missing == {"boltzmann", "hyena", "ssm", "attention", "conv", "lstm"}
