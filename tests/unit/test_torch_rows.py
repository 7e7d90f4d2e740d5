"""How batches are read: every way to name a group, and what is refused."""

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from fferm.errors import (
    InvalidInputError,
    InvalidParameterError,
    InvalidTypeError,
    MissingGroupWarning,
    SmallGroupWarning,
)
from fferm.notions import ConditionalParity, Notion, Strata

torch = pytest.importorskip("torch")

from fferm.torch import FairnessLoss  # noqa: E402 - after torch

pytestmark = pytest.mark.filterwarnings("ignore::fferm.errors.DataFairnessWarning")

N = 60
Y = np.arange(N) % 2
SEX = np.where(np.arange(N) // 2 % 2 == 0, "Female", "Male")
BAND = np.arange(N) // 3 % 3
LOGITS = torch.tensor(np.random.default_rng(0).normal(size=(N, 2)))


def primed(fair, *arguments, **options):
    """Return the loss with a dual that is not 0, in evaluation mode."""
    rng = np.random.default_rng(1)
    fair.dual_variable.copy_(torch.tensor(rng.normal(size=fair.dual_variable.shape)))
    return fair.eval()


def test_every_way_to_name_a_group_says_the_same():
    fair = primed(FairnessLoss.from_labels(Y, SEX))
    codes = fair.encode(SEX)
    assert fair.groups == ("Female", "Male")
    hot = torch.nn.functional.one_hot(codes, 2)
    values = [
        fair(LOGITS, codes).item(),
        fair(LOGITS, codes[:, None]).item(),
        fair(LOGITS, codes.to(torch.int8)).item(),
        fair(LOGITS, codes.double()).item(),
        fair(LOGITS, codes.bool()).item(),
        fair(LOGITS, hot).item(),
        fair(LOGITS, hot.float()).item(),
        fair(LOGITS, SEX).item(),
        fair(LOGITS, list(SEX)).item(),
        fair(LOGITS, pd.Series(SEX)).item(),
    ]
    assert values[0] != 0
    assert_allclose(values, values[0], rtol=1e-12)


@pytest.mark.parametrize("groups", ["intersection", "marginal"])
def test_several_columns_are_read_as_in_training(groups):
    frame = pd.DataFrame({"sex": SEX, "band": BAND})
    fair = primed(FairnessLoss.from_labels(Y, frame, groups=groups))
    codes = fair.encode(frame)
    assert codes.shape == (N, 2)
    value = fair(LOGITS, codes).item()
    assert value == fair(LOGITS, frame).item() == fair(LOGITS, {**frame}).item()
    tensors = {"sex": codes[:, 0], "band": torch.tensor(BAND)}
    number = FairnessLoss.from_labels(Y, tensors, groups=groups)
    assert primed(number)(LOGITS, tensors).item() == value
    count = len(fair.groups)
    assert count == (6 if groups == "intersection" else 5)
    sex = (SEX == "Male").astype(int)
    if groups == "intersection":
        hot = np.eye(6)[sex * 3 + BAND]
    else:
        hot = np.hstack([np.eye(2)[sex], np.eye(3)[BAND]])
    assert fair(LOGITS, torch.tensor(hot)).item() == pytest.approx(value)


def test_whole_numbers_stand_for_themselves():
    values = np.where(np.arange(N) % 2 == 0, 3, 7)
    fair = primed(FairnessLoss.from_labels(Y, values))
    other = primed(FairnessLoss.from_labels(Y, values == 7))
    assert torch.equal(fair.encode(values), torch.tensor(values))
    given = fair(LOGITS, torch.tensor(values)).item()
    assert given == other(LOGITS, torch.tensor(values == 7)).item() != 0


@pytest.mark.parametrize("unknown", [-1, math.nan, None])
def test_the_unknown_is_unknown_however_it_is_written(unknown):
    kind = object if unknown is None else float
    values = np.where(np.arange(N) < 5, unknown, (Y + 0.0)).astype(kind)
    fair = primed(FairnessLoss.from_labels(Y, values))
    assert fair.groups == ("0", "1")
    known = torch.tensor(np.where(np.arange(N) < 5, -1, Y))
    assert torch.equal(fair.encode(values), known)
    hot = torch.nn.functional.one_hot(torch.tensor(Y), 2)
    hot[:5] = 0
    expected = fair(LOGITS, known).item()
    assert fair(LOGITS, hot).item() == expected != 0
    gaps = torch.where(known < 0, math.nan, known.double())
    assert fair(LOGITS, gaps).item() == expected


@pytest.mark.filterwarnings("default")
def test_gaps_and_small_groups_are_counted_aloud_where_the_loss_is_made():
    gaps = np.where(np.arange(N) < 5, -1, np.where(np.arange(N) < 9, 2, Y))
    with pytest.warns(MissingGroupWarning, match="5 of 60 rows") as found:
        FairnessLoss.from_labels(Y, gaps)
    assert {warning.category for warning in found} == {
        MissingGroupWarning,
        SmallGroupWarning,
    }
    assert {warning.filename for warning in found} == {__file__}


def test_labels_of_minus_and_plus_one_are_no_groups():
    with pytest.raises(InvalidInputError, match="No part of the data holds two groups"):
        FairnessLoss.from_labels(Y, 2 * Y - 1)


def test_labels_may_be_strings_and_gaps():
    names = np.where(Y == 1, "yes", "no")
    fair = primed(FairnessLoss.from_labels(names, SEX, notion="equal_opportunity"))
    assert fair.classes == ("no", "yes")
    codes = fair.encode_labels(names)
    assert torch.equal(codes, torch.tensor(Y))
    value = fair(LOGITS, SEX, codes).item()
    assert value == fair(LOGITS, SEX, names).item()
    assert value == fair(LOGITS, SEX, codes[:, None].double()).item()
    gaps = torch.where(codes == 0, -1, codes)  # the negatives do not count anyway
    assert value == fair(LOGITS, SEX, gaps).item() != 0


def test_without_labels_classes_say_what_is_predicted():
    fair = primed(FairnessLoss.from_labels(None, SEX, classes=["a", "b", "c"]))
    assert fair.dual_variable.shape == (1, 3, 2)
    with pytest.raises(InvalidParameterError, match="Either y or classes"):
        FairnessLoss.from_labels(None, SEX)


def test_a_control_feature_comes_with_each_batch():
    notion = ConditionalParity([f"department {k}" for k in BAND])
    fair = primed(FairnessLoss.from_labels(Y, SEX, notion=notion))
    assert fair.strata == tuple(f"department {k}" for k in range(3))
    value = fair(LOGITS, SEX, control=torch.tensor(BAND)).item()
    assert value == fair(LOGITS, SEX, control=notion.control).item() != 0
    assert fair(LOGITS, SEX, control=torch.full((N,), -1)).item() == 0
    with pytest.raises(InvalidInputError, match="Pass control= in each"):
        fair(LOGITS, SEX)
    with pytest.raises(InvalidParameterError, match="a loss sees no X"):
        FairnessLoss.from_labels(Y, SEX, notion=ConditionalParity("department"))


class ByRank(Notion, abstract=True):  # so it is not registered for other tests
    """A notion that looks at other rows."""

    name = "by_rank_of_row"

    def strata(self, labels):
        return Strata(np.arange(labels.n_samples) % 2, ("even", "odd"))


def test_a_notion_that_looks_at_other_rows_is_refused():
    y = np.arange(N) // 4 % 2
    with pytest.raises(InvalidParameterError, match="one row at a time"):
        FairnessLoss.from_labels(y, SEX, notion=ByRank())


def test_an_intersection_that_training_lacked_is_left_out():
    s = np.column_stack([Y, np.where(Y == 1, BAND % 2, 0)])
    fair = primed(FairnessLoss.from_labels(Y, s))
    assert fair.groups == ("0 × 0", "1 × 0", "1 × 1")
    assert fair(LOGITS[:1], torch.tensor([[0, 1]])).item() == 0


REFUSED = {
    "three outputs for two classes": (
        (torch.zeros(N, 3), torch.tensor(Y)),
        r"there are 2 classes; got \(60, 3\)",
    ),
    "a squeezed batch of one": (
        (torch.tensor(0.3), torch.tensor([0])),
        r"there are 2 classes; got \(\)",
    ),
    "fewer groups than rows": (
        (LOGITS, torch.tensor(Y[:5])),
        r"the output has 60 rows; got \(5,\)",
    ),
    "columns that training lacked": (
        (LOGITS, torch.zeros(N, 4)),
        r"sensitive must have shape \(60, 1\), .* got \(60, 4\)",
    ),
    "a group that training lacked": (
        (LOGITS, torch.tensor(Y + 1)),
        r"group contains 2, .* one of 0 \(Female\), 1 \(Male\), or -1",
    ),
    "a name that training lacked": (
        (LOGITS, ["x"] * N),
        "'x', which is not in the training",
    ),
    "no labels": ((LOGITS, torch.tensor(Y)), "Pass y= in each call"),
    "labels of other rows": (
        (LOGITS, torch.tensor(Y), torch.tensor(Y[:3])),
        r"y must have shape \(60,\), .* got \(3,\)",
    ),
    "groups that are no whole numbers": (
        (LOGITS, torch.tensor(0.7 * Y), torch.tensor(Y)),
        r"group contains 0\.7, which is not a whole number",
    ),
    "labels that are no whole numbers": (
        (LOGITS, torch.tensor(Y), torch.tensor(Y - 0.25)),
        r"y contains -0\.25, which is not a whole number",
    ),
    "labels that are no codes": (
        (LOGITS, torch.tensor(Y), torch.tensor(Y + 1)),
        "y contains 2, .* one of 0, 1, or -1",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_a_batch_that_cannot_be_read_is_refused_in_words(arguments, message):
    fair = FairnessLoss.from_labels(Y, SEX, notion="equalized_odds")
    with pytest.raises(InvalidInputError, match=message):
        fair(*arguments)


def test_a_small_batch_may_hold_another_group_in_every_row():
    many = np.array([f"town {k:02}" for k in np.arange(400) % 40])
    fair = FairnessLoss.from_labels(np.arange(400) % 2, many)
    assert fair.encode(many[:40]).tolist() == list(range(40))


def test_decisions_are_no_outputs():
    fair = FairnessLoss.from_labels(Y, SEX)
    with pytest.raises(InvalidTypeError, match=r"a tensor of torch\.int64"):
        fair(torch.tensor(Y), torch.tensor(Y))
    with pytest.raises(InvalidTypeError, match="a ndarray"):
        fair(LOGITS.numpy(), torch.tensor(Y))


def test_logits_are_no_probabilities():
    fair = FairnessLoss.from_labels(Y, SEX, outputs="probabilities")
    with pytest.raises(InvalidInputError, match="not probabilities"):
        fair(LOGITS, torch.tensor(Y))


def test_unchecked_values_out_of_range_are_left_out():
    fair = primed(FairnessLoss.from_labels(Y, SEX, check=False))
    strange = torch.tensor(np.where(Y == 1, 9, -7))
    assert fair(LOGITS, strange).item() == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outputs": "scores"}, "must be 'logits' or 'probabilities'"),
        ({"sharpness": 0.0}, "sharpness must be"),
        ({"groups": "all"}, "must be 'intersection' or 'marginal'"),
        ({"divergence": "klx"}, "Did you mean 'kl'"),
    ],
)
def test_a_parameter_out_of_range_is_refused(options, message):
    with pytest.raises(InvalidParameterError, match=message):
        FairnessLoss.from_labels(Y, SEX, **options)


@pytest.mark.parametrize(
    ("y", "s", "message"),
    [
        (np.zeros(N, dtype=int), SEX, "one class only"),
        (Y[:5], SEX, "60 values for 5 rows"),
        (Y, np.where(Y == 1, 10**9, 0), "Number the groups 0, 1"),
        (Y, np.full(N, "a"), "No part of the data holds two groups"),
        (Y, np.full(N, -1), "No row has a value of group"),
        (Y, np.column_stack([Y, np.full(N, -1)]), "No row has a value of group_1"),
    ],
)
def test_labels_that_make_no_loss_are_refused(y, s, message):
    with pytest.raises(InvalidInputError, match=message):
        FairnessLoss.from_labels(y, s)
