"""KLUE-RE: which relations a pair of entity types can have, after the tables of those who worked with it."""

# The union of three tables; it only ever allows more than what the training examples show.
_WIDE = {
    "PER-PER": ("origin employee_of alternate_names parents children siblings spouse other_family colleagues product"),
    "PER-POH": (
        "place_of_death place_of_residence origin employee_of schools_attended alternate_names parents "
        "children siblings spouse colleagues product religion title"
    ),
    "PER-ORG": (
        "place_of_death place_of_residence origin employee_of schools_attended alternate_names colleagues "
        "product religion title"
    ),
    "PER-LOC": ("place_of_birth place_of_death place_of_residence origin employee_of schools_attended title"),
    "PER-DAT": ("date_of_birth date_of_death place_of_residence origin"),
    "PER-NOH": (""),
    "ORG-PER": ("alternate_names product founded_by top_members/employees"),
    "ORG-POH": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "top_members/employees"
    ),
    "ORG-ORG": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "founded_by top_members/employees"
    ),
    "ORG-LOC": (
        "place_of_headquarters alternate_names member_of members political/religious_affiliation product "
        "top_members/employees"
    ),
    "ORG-DAT": ("dissolved founded alternate_names product"),
    "ORG-NOH": ("alternate_names product number_of_employees/members"),
}


def possible(pair: str) -> frozenset[str]:
    """The relations of a pair such as PER-ORG, without no_relation."""
    prefix = pair.split("-")[0].lower()
    return frozenset(f"{prefix}:{name}" for name in _WIDE.get(pair, "").split())
