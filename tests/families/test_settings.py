"""The command line and the estimators share one set of settings, under one set of names."""

import inspect

import pytest

from partita.estimators import ESTIMATORS, Density
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


def with_family() -> list[type[Density]]:
    return [found for found in ESTIMATORS.values() if issubclass(found, Density)]


@pytest.mark.parametrize("cls", with_family(), ids=lambda cls: cls.__name__)
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
    made = {FAMILIES[cls.family].make for cls in with_family()}
    assert [family.name for family in FAMILIES.values() if family.make not in made] == ["boltzmann"]
