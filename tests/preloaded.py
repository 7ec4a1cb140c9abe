"""What children of tests are forked with.

A process has one fork server, whoever starts it: what it has not loaded, each child of all the others loads by itself,
for half a second or more. A module that cannot be found, because its directory is not collected, is left out.
"""

PRELOADED = [
    "pytest",
    "killed",
    "children",
    "tests.integration.support",
    "tests.integration.dying",
    "tests.faults.oracle",
]
