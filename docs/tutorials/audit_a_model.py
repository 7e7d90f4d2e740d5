# %% [markdown]
# # Audit a model that exists
#
# Somebody else has trained a model. You have its decisions, the outcomes and the groups of 16,281 people. fferm audits it without
# touching it; here it is one of scikit-learn.

# %%
from sklearn.ensemble import HistGradientBoostingClassifier

from fferm import audit
from fferm.datasets import load_adult

data = load_adult(sensitive=("sex", "race"))
existing = HistGradientBoostingClassifier(max_iter=20, random_state=0)
existing.fit(data.X, data.y)

people = data.sensitive_features_test
decisions = existing.predict(data.X_test)
chances = existing.predict_proba(data.X_test)

# %% [markdown]
# ## Sex alone
#
# `audit` needs three columns. With probabilities it also judges the scores behind the decisions.

# %%
by_sex = audit(
    y_true=data.y_test,
    y_pred=decisions,
    y_prob=chances,
    sensitive_features=people["sex"],
)
print(by_sex)

# %% [markdown]
# Read it from the top: how often the model is right, how far apart the two rates are, how much of that chance explains (next to
# nothing), and the ratio that the four-fifths rule asks about.
#
# ## Another notion
#
# Men may earn more in these data. Among people who do, are women found as often? That is equal opportunity.

# %%
among_rich = audit(
    y_true=data.y_test,
    y_pred=decisions,
    sensitive_features=people["sex"],
    notion="equal_opportunity",
)
low, high = among_rich.interval
print(f"gap of found rich people {among_rich.violation:.3f} ({low:.3f} to {high:.3f})")

# %% [markdown]
# ## Sex and race
#
# Two columns are crossed. Some crossings are small, and their rates are noise: with `min_group_size` they are listed and not judged.

# %%
crossed = audit(
    y_true=data.y_test,
    y_pred=decisions,
    sensitive_features=people,
    min_group_size=200,
)
columns = ["count", "selection_rate_1", "selection_low_1", "selection_high_1"]
print(crossed.frame[columns].round(3).to_string())
for group, size in crossed.small_groups["sex × race"].items():
    print("not judged:", group, size)

# %% [markdown]
# ## A gate
#
# `verdict` answers with 95 % confidence, for a pipeline that may release the model or not. On the command line,
# `fferm audit` does the same and exits with 1.

# %%
for bound in (0.05, 0.1, 0.2, 0.25):
    print(f"violation at most {bound}: {by_sex.verdict(bound)}")
by_sex.to_html("audit.html")

# %% [markdown]
# `audit.html` is one file to send to whoever asked. If the model fails, train a fair one: [a bank's table](bank_table.ipynb).
