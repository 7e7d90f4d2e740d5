# %% [markdown]
# # A bank's table
#
# A bank wants to predict who will repay a credit. Its table has text, numbers and 1,000 people, and fewer of the young
# are rated good risks. We train a fair model, see what fairness costs, and find out how much 1,000 people can tell at all.

# %%
from fferm import FairLogisticRegression, audit, load, save, tradeoff_curve
from fferm.datasets import load_german

data = load_german("age_over_25")
train, test = data.frame, data.frame_test
young, young_test = data.sensitive_features, data.sensitive_features_test
print(train[["purpose", "credit_amount", "housing", "age"]].head(3).to_string())
print(len(train), "people to train on,", len(test), "to test on")

# %% [markdown]
# ## A model without a fairness term
#
# `fairness_weight=0` is plain logistic regression. `categorical=[]` says that no column of numbers is a code.

# %%
plain = FairLogisticRegression(fairness_weight=0.0, categorical=[])
plain.fit(train, data.y, sensitive_features=young)
print(audit(plain, test, data.y_test, sensitive_features=young_test))

# %% [markdown]
# The line *by chance* says what a perfectly fair model would show on these rows. The gap of the plain model is well above it.
#
# ## What fairness costs
#
# One sweep trains a model for each of eight weights and measures all of them on a quarter of the training rows, held out.

# %%
curve = tradeoff_curve(
    FairLogisticRegression(categorical=[]),
    train,
    data.y,
    sensitive_features=young,
    fairness_weights=8,
)
front = curve.pareto()[["fairness_weight", "accuracy", "violation"]]
print(front.round(3).to_string(index=False))

# %% [markdown]
# ## Choose, audit, save
#
# `select` takes the most accurate model whose held-out violation is within the bound. The audit, on rows that nobody
# has used so far, has the last word.

# %%
model = curve.select(max_violation=0.1, confidence=None)
result = audit(model, test, data.y_test, sensitive_features=young_test)
print(f"accuracy {result.accuracy:.3f}, violation {result.violation:.3f}")
print("interval", [round(end, 3) for end in result.interval])
save(model, "credit.fferm")
same = load("credit.fferm").predict(test) == model.predict(test)
print("the same answers from the file:", same.all())

# %% [markdown]
# ## What 300 people can prove
#
# The interval is wide. A test of the bound may say that it passes, that it is refuted, or that these rows cannot tell.

# %%
print("verdict on a bound of 0.1:", result.verdict(0.1))
print("more than 5,000 people needed:", result.rows_to_decide(0.1) > 5000)

# %% [markdown]
# Next: [bounds that hold](../guide/bounds.md), and [an audit of a model that exists](audit_a_model.ipynb).
