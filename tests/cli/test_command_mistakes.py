"""A hundred mistakes on the command line, and the exact line that answers each.

`MISTAKES` is made for reading: what is wrong, the files that there are beside those of
`shared`, the command line, and the line on standard error. The exit code is 2, and no
file comes or goes.
"""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fferm
from fferm.cli import program

ROWS = 120
RNG = np.random.default_rng(0)
TABLE = pd.DataFrame(
    {
        "id": [f"p{i}" for i in range(ROWS)],
        "age": RNG.normal(40, 10, ROWS).round(1),
        "city": RNG.choice(["Bergen", "Oslo"], ROWS),
        "sex": ["f", "m"] * (ROWS // 2),
        "salary": RNG.normal(50, 9, ROWS).round(3),
    }
)
TABLE["granted"] = np.where(TABLE["age"] + RNG.normal(0, 5, ROWS) > 40, "yes", "no")
TABLE["decision"] = np.where(TABLE["age"] > 40, "yes", "no")
TABLE["chance"] = (TABLE["age"].rank() / (ROWS + 1)).round(3)
TABLE["guess"] = (TABLE["salary"] + RNG.normal(0, 1, ROWS)).round(3)
TEXT = TABLE.to_csv(index=False)

FIT = "fit loans.csv --target granted --sensitive sex --out model"
CURVE = "curve loans.csv --target granted --sensitive sex --out records"
GIVEN = "audit loans.csv --prediction decision --target granted --sensitive sex"
NUMBERS = "audit loans.csv --prediction guess --target salary --sensitive sex"
FIT_F = "fit f.csv --target y --sensitive g --out model"


def parquet(x):
    """Return a Parquet file with a column of these values, groups and labels."""
    stream = io.BytesIO()
    rows = {"x": x, "g": ["a", "b", "b", "a"] * 10, "y": ["u", "v"] * 20}
    pd.DataFrame(rows).to_parquet(stream)
    return stream.getvalue()


LISTS, DATES = parquet([[1], [2]] * 20), parquet(pd.date_range("2020", periods=40))
FREE = "x,g,y\n" + "".join(
    f"a letter of person {i} to us,{'ab'[i % 2]},{'uv'[i // 2 % 2]}\n"
    for i in range(60)
)
NOAGE = TABLE.drop(columns="age").to_csv(index=False)
OTHER = TABLE.replace({"granted": {"yes": "maybe"}}).to_csv(index=False)
WORDS = TABLE.assign(age="old").to_csv(index=False)
GAPS = TABLE.assign(decision=TABLE["decision"].where(TABLE.index > 3)).to_csv(
    index=False
)
# Of the saved model: its first bytes, and one word changed.
CUT, ODD = object(), object()

# What is wrong, the files, the command line, and the line that answers it.
MISTAKES = [
    # Files
    (
        "no such file",
        {},
        "fit loan.csv --target granted --sensitive sex --out model",
        "loan.csv does not exist. Name a CSV or Parquet file, or one of the data "
        "sets adult, german, compas, acs_income, gov_census.",
    ),
    (
        "a folder",
        {},
        "fit folder --target granted --sensitive sex --out model",
        "folder is a folder without Parquet files. Name a CSV or Parquet file, or a"
        " folder of Parquet files.",
    ),
    (
        "an empty file",
        {"f.csv": ""},
        FIT_F,
        "f.csv cannot be read as CSV (it is empty, or begins with an empty line). "
        "It needs a header (or --no-header), rows with as many fields, and the "
        "right --sep and --encoding.",
    ),
    (
        "an empty first line",
        {"f.csv": "\n\na,b\n"},
        FIT_F,
        "f.csv cannot be read as CSV (it is empty, or begins with an empty line). "
        "It needs a header (or --no-header), rows with as many fields, and the "
        "right --sep and --encoding.",
    ),
    (
        "a header alone",
        {"f.csv": "x,g,y\n"},
        FIT_F,
        "f.csv has a header and no rows. Add rows.",
    ),
    (
        "no header",
        {"f.csv": "1,a,x\n2,b,z\n"},
        FIT_F,
        "The data have no column 'y', the target. Columns: 1, a, x.",
    ),
    (
        "no header with names asked for",
        {},
        FIT + " --no-header",
        "The data have no column 'granted', the target. Columns: f0, f1, f2, f3, "
        "f4, f5, f6, f7, f8.",
    ),
    (
        "the wrong separator",
        {},
        FIT + " --sep ;",
        "The data have no column 'granted', the target. There is only one column; "
        "check --sep. Columns: "
        "id,age,city,sex,salary,granted,decision,chance,guess.",
    ),
    (
        "a separator of two characters",
        {},
        FIT + " --sep ::",
        "--sep must be one character, or tab; got '::'.",
    ),
    (
        "an unknown encoding",
        {},
        FIT + " --encoding utf-9",
        "--encoding must be one that Python knows, such as utf-8 or latin-1; got "
        "'utf-9'.",
    ),
    (
        "the wrong encoding",
        {"f.csv": "x,g,y\n1,\xe9,z\n".encode("latin-1")},
        FIT_F,
        "f.csv cannot be read as CSV (byte 8 is not utf-8; spreadsheets often write "
        "latin-1). It needs a header (or --no-header), rows with as many fields, and "
        "the right --sep and --encoding.",
    ),
    (
        "an encoding of bytes",
        {},
        FIT + " --encoding base64",
        "--encoding must be one that Python knows, such as utf-8 or latin-1; got "
        "'base64'.",
    ),
    (
        "a column without a name",
        {"f.csv": "x,,y\n1,a,z\n"},
        FIT_F,
        "Column 2 of f.csv has no name. Name it in the header.",
    ),
    (
        "two columns of one name",
        {"f.csv": "x,x,y\n1,a,z\n"},
        "fit f.csv --target y --sensitive x --out model",
        "Two columns of f.csv are named 'x'. Rename one.",
    ),
    (
        "a picture",
        {"f.csv": b"\x89PNG\r\n\x1a\n\0\0"},
        FIT_F,
        "f.csv cannot be read as CSV (byte 0 is not utf-8; spreadsheets often write "
        "latin-1). It needs a header (or --no-header), rows with as many fields, and "
        "the right --sep and --encoding.",
    ),
    (
        "a spreadsheet",
        {"f.xlsx": b"PK\x03\x04 no archive"},
        "fit f.xlsx --target y --sensitive g --out model",
        "f.xlsx cannot be read as CSV (the archive is damaged: File is not a zip "
        "file). It needs a header (or --no-header), rows with as many fields, and "
        "the right --sep and --encoding.",
    ),
    (
        "a column of lists",
        {"f.parquet": LISTS},
        "fit f.parquet --target y --sensitive g --out model",
        "Column 'x' contains values of type ndarray. Columns must hold numbers, "
        "text, categories or booleans; drop this one.",
    ),
    (
        "a model as the data",
        {},
        "fit good.fferm --target granted --sensitive sex --out model",
        "good.fferm cannot be read as CSV (the archive holds 5 files, not one). It "
        "needs a header (or --no-header), rows with as many fields, and the right "
        "--sep and --encoding.",
    ),
    # Columns
    (
        "a misspelled target",
        {},
        FIT.replace("granted", "grantd"),
        "The data have no column 'grantd', the target. Did you mean 'granted'? "
        "Columns: id, age, city, sex, salary, granted, decision, chance, guess.",
    ),
    (
        "a misspelled sensitive column",
        {},
        FIT.replace("sex", "Sex"),
        "The data have no column 'Sex', the sensitive column. Did you mean 'sex'? "
        "Columns: id, age, city, sex, salary, granted, decision, chance, guess.",
    ),
    (
        "an unknown target",
        {},
        FIT.replace("granted", "outcome"),
        "The data have no column 'outcome', the target. Columns: id, age, city, "
        "sex, salary, granted, decision, chance, guess.",
    ),
    (
        "no target named",
        {},
        "fit loans.csv --sensitive sex --out model",
        "--target is missing. Name the column, for example --target NAME.",
    ),
    (
        "no sensitive column named",
        {},
        "fit loans.csv --target granted --out model",
        "--sensitive is missing. Name the column, for example --sensitive NAME.",
    ),
    (
        "the target as the sensitive column",
        {},
        FIT.replace("sex", "granted"),
        "--sensitive must name other columns and not the target, 'granted'.",
    ),
    (
        "a sensitive column that names rows",
        {},
        FIT.replace("sex", "id"),
        "id makes 120 groups of 120 rows, so it identifies rows. Use a column of "
        "fewer values, or fferm.data.groups.quantile_bands(values).",
    ),
    (
        "a sensitive column of one group",
        {"f.csv": "x,g,y\n" + "1,a,u\n2,a,v\n" * 20},
        FIT_F,
        "g must have at least two groups; got 1. Name another column.",
    ),
    (
        "a dossier of an unknown rule",
        {},
        GIVEN + " --for ll145",
        "Unknown rule 'll145'. Did you mean 'll144'? Known: ll144, eeoc, ecoa, "
        "eu-ai-act.",
    ),
    (
        "a dossier without the column that its rule is about",
        {},
        GIVEN + " --for ll144",
        "ll144 needs a column of sex and race; got sex. Name the column of race: "
        'race="sex" in Python, --race on the command line.',
    ),
    (
        "an option of dossiers without a rule",
        {},
        GIVEN + " --race sex",
        "--race needs --for, such as --for ll144.",
    ),
    (
        "a reference that is no pair",
        {},
        GIVEN + " --for ecoa --reference f",
        "--reference must be COLUMN=CATEGORY, such as sex=man; got f.",
    ),
    (
        "a sensitive column without values",
        {"f.csv": "x,g,y\n" + "1,,u\n2,,v\n" * 20},
        FIT_F,
        "g must have at least two groups; got 0. Name another column.",
    ),
    (
        "a target of one class",
        {"f.csv": "x,g,y\n" + "1,a,u\n2,b,u\n" * 20},
        FIT_F,
        "The target needs two values, but has only one class, 'u'. Name another "
        "column.",
    ),
    (
        "a target without values",
        {"f.csv": "x,g,y\n" + "1,a,\n2,b,\n" * 20},
        FIT_F,
        "The target 'y' is missing in every row. Name another column.",
    ),
    (
        "an id as the target",
        {},
        FIT.replace("granted", "id"),
        "The target 'id' must have at most 100 classes; got 120 distinct values. "
        "Name another column, or cut it into bands.",
    ),
    (
        "fractions as classes",
        {},
        FIT.replace("granted", "salary") + " --task classification",
        "The target 'salary' contains fractional numbers such as 47.841, not "
        "classes. Cut it into bands, or predict a number.",
    ),
    (
        "classes as numbers",
        {},
        FIT + " --task regression",
        "Column 'granted' must be numbers; got 'yes'. Name another column.",
    ),
    (
        "one number as the target",
        {"f.csv": "x,g,y\n" + "1,a,5\n2,b,5\n" * 20},
        FIT_F + " --task regression",
        "The target needs two values, but has only one value, '5.0'. Name another "
        "column.",
    ),
    (
        "an infinite target",
        {"f.csv": "x,g,y\n" + "1,a,5\n2,b,inf\n" * 20},
        FIT_F + " --task regression",
        "Column 'y' is missing or infinite in 20 of 40 rows. Every row needs a "
        "finite number; drop those rows.",
    ),
    (
        "no column to predict from",
        {"f.csv": "g,y\n" + "a,u\nb,v\n" * 20},
        FIT_F + " --drop-sensitive",
        "No column to predict from: none is left. Add one.",
    ),
    (
        "an unknown column to drop",
        {},
        FIT + " --drop agee",
        "The data have no column 'agee', the column to drop. Did you mean 'age'? "
        "Columns: id, age, city, sex, salary, granted, decision, chance, guess.",
    ),
    (
        "an unknown column of codes",
        {},
        FIT + " --categorical town",
        "categorical: Unknown column 'town'. Known: id, age, city, sex, salary, "
        "decision, chance, guess.",
    ),
    (
        "bands of a column that is not sensitive",
        {},
        FIT + " --bands age",
        "--bands names 'age', which is not a sensitive column. Sensitive columns: sex.",
    ),
    (
        "bands of words",
        {},
        FIT + " --bands sex",
        "sex contains non-numeric values, which have no bands (Unable to parse "
        "string 'f' at position 0).",
    ),
    (
        "infinity among the features",
        {"f.csv": "x,g,y\n" + "1,a,u\ninf,b,v\n" * 20},
        FIT_F,
        "Column 'x' contains infinity, or numbers above 1e+100. Correct them, or "
        "leave them empty.",
    ),
    (
        "dates in a Parquet file",
        {"f.parquet": DATES},
        "fit f.parquet --target y --sensitive g --out model",
        "x contains dates. Turn them into numbers that mean something, such as an "
        "age in years, or drop the column (--drop).",
    ),
    (
        "free text",
        {"f.csv": FREE},
        FIT_F,
        "Column 'x' has 45 distinct texts in 45 rows, so it is free text and not a "
        "category. Drop the column (--drop), or turn it into categories or numbers.",
    ),
    (
        "too few rows",
        {"f.csv": "x,g,y\n1,a,u\n2,b,v\n"},
        FIT_F,
        "A test share of 0.25 leaves 2 training and 0 test rows of 2. Both need "
        "some; pass more rows.",
    ),
    # Options of fit
    (
        "an unknown notion",
        {},
        FIT + " --notion equal_odds",
        "Unknown notion 'equal_odds'. Did you mean 'equalized_odds'? Known: "
        "conditional_parity, demographic_parity, equal_opportunity, equalized_odds,"
        " false_positive_rate_parity, predictive_parity, sufficiency.",
    ),
    (
        "a notion that needs a column",
        {},
        FIT + " --notion conditional_parity",
        "'conditional_parity' needs parameters. In Python pass "
        "ConditionalParity(control=...).",
    ),
    (
        "an unknown divergence",
        {},
        FIT + " --divergence klx",
        "Unknown divergence 'klx'. Did you mean 'kl'? Known: affine, alpha, chi2, "
        "jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "an unknown model",
        {},
        FIT + " --model forest",
        "--model must be one of linear, net, boosting; got 'forest'. Try: fferm fit"
        " --help",
    ),
    (
        "an unknown task",
        {},
        FIT + " --task ranking",
        "--task must be one of auto, classification, regression; got 'ranking'. "
        "Try: fferm fit --help",
    ),
    (
        "an unknown mode of groups",
        {},
        FIT + " --groups both",
        "--groups must be one of intersection, marginal; got 'both'. Try: fferm fit"
        " --help",
    ),
    (
        "an unknown option",
        {},
        FIT + " --fairness 3",
        "No such option: --fairness (Possible options: --fairness-weight). Try: "
        "fferm fit --help",
    ),
    (
        "a misspelled option",
        {},
        FIT + " --max-violaton 0.1",
        "No such option: --max-violaton (Possible options: --max-violation). Try: "
        "fferm fit --help",
    ),
    (
        "an unknown command",
        {},
        "train loans.csv",
        "No such command 'train'. Try: fferm --help",
    ),
    (
        "a misspelled command",
        {},
        "predit loans.csv",
        "No such command 'predit'. Did you mean 'predict'? Try: fferm --help",
    ),
    (
        "too many arguments",
        {},
        FIT + " more",
        "Got unexpected extra argument(s) (more). Try: fferm fit --help",
    ),
    (
        "an option without its value",
        {},
        FIT + " --seed",
        "Option '--seed' requires an argument. Try: fferm --help",
    ),
    (
        "no place for the model",
        {},
        "fit loans.csv --target granted --sensitive sex",
        "Missing option '--out'. Try: fferm fit --help",
    ),
    (
        "a weight in words",
        {},
        FIT + " --fairness-weight high",
        "--fairness-weight must be a number; got 'high'. Try: fferm fit --help",
    ),
    (
        "a negative weight",
        {},
        FIT + " --fairness-weight -1",
        "--fairness-weight must be a finite number of at least 0; got -1.0.",
    ),
    (
        "an infinite weight",
        {},
        FIT + " --fairness-weight inf",
        "--fairness-weight must be a finite number of at least 0; got inf.",
    ),
    (
        "a bound above 1",
        {},
        FIT + " --max-violation 5",
        "--max-violation must be between 0 and 1; got 5.0.",
    ),
    (
        "a bound in percent",
        {},
        FIT + " --max-violation 5%",
        "--max-violation must be a number; got '5%'. Try: fferm fit --help",
    ),
    (
        "a bound with a comma",
        {},
        FIT + " --max-violation 0,05",
        "--max-violation must be a number; got '0,05'. Try: fferm fit --help",
    ),
    (
        "a negative bound",
        {},
        FIT + " --max-violation -0.1",
        "--max-violation must be between 0 and 1; got -0.1.",
    ),
    (
        "a measure that is not known",
        {},
        FIT + " --max-violation 0.2 --measure odds",
        "--measure must be one of difference, ratio, deviation; got 'odds'. Try: fferm"
        " fit --help",
    ),
    (
        "a weight beside a bound",
        {},
        FIT + " --fairness-weight 1 --max-violation 0.1",
        "--fairness-weight and --max-violation contradict each other: a bound finds"
        " its own weight. Leave one of them out.",
    ),
    (
        "a weight beside a bound on the divergence",
        {},
        FIT + " --fairness-weight 1 --max-divergence 0.1",
        "--fairness-weight and --max-divergence contradict each other: a bound finds"
        " its own weight. Leave one of them out.",
    ),
    (
        "two bounds",
        {},
        FIT + " --max-violation 0.1 --max-divergence 0.1",
        "--max-violation and --max-divergence contradict each other: a bound finds"
        " its own weight. Leave one of them out.",
    ),
    (
        "a negative bound on the divergence",
        {},
        FIT + " --max-divergence -0.1",
        "--max-divergence must be a finite number of at least 0; got -0.1.",
    ),
    (
        "an infinite bound on the divergence",
        {},
        FIT + " --max-divergence inf",
        "--max-divergence must be a finite number of at least 0; got inf.",
    ),
    (
        "a bound on the divergence in words",
        {},
        FIT + " --max-divergence low",
        "--max-divergence must be a number; got 'low'. Try: fferm fit --help",
    ),
    (
        "confidence in percent",
        {},
        FIT + " --max-violation 0.1 --confidence 95",
        "--confidence must be at least 0.5 and below 1; got 95.0.",
    ),
    (
        "confidence in words",
        {},
        FIT + " --max-violation 0.1 --confidence high",
        "--confidence must be a number; got 'high'. Try: fferm fit --help",
    ),
    (
        "a metric of numbers for classes",
        {},
        FIT + " --metric mean_gap",
        "--metric mean_gap needs a numeric target, but this one has classes. Leave "
        "it out, or change --task.",
    ),
    (
        "an unknown metric",
        {},
        FIT.replace("granted", "salary") + " --metric ks",
        "Unknown measure 'ks'. Known: correlation, distance_correlation, "
        "f_information, kolmogorov_smirnov, maximal_correlation, mean_gap, "
        "wasserstein.",
    ),
    (
        "a notion of labels for numbers",
        {},
        FIT.replace("granted", "salary") + " --notion equalized_odds",
        "notion='equalized_odds' conditions on a label; y is numeric. Use "
        "ConditionalParity(pandas.qcut(y, 5, labels=False)).",
    ),
    (
        "a ratio of numbers",
        {},
        FIT.replace("granted", "salary") + " --measure ratio",
        "--measure ratio needs a target of classes, but this one is numeric. Leave"
        " it out, or change --task.",
    ),
    (
        "trees for numbers",
        {},
        FIT.replace("granted", "salary") + " --model boosting",
        "--model boosting needs a target of classes, but this one is numeric. Leave"
        " it out, or change --task.",
    ),
    (
        "a test share of 0",
        {},
        FIT + " --test-share 0",
        "--test-share must be above 0 and below 1; got 0.0.",
    ),
    (
        "a test share in percent",
        {},
        FIT + " --test-share 25",
        "--test-share must be above 0 and below 1; got 25.0.",
    ),
    (
        "a negative seed",
        {},
        FIT + " --seed -1",
        "--seed must be an integer between 0 and 4294967295; got -1.",
    ),
    (
        "a seed too large",
        {},
        FIT + " --seed 99999999999",
        "--seed must be an integer between 0 and 4294967295; got 99999999999.",
    ),
    (
        "half a seed",
        {},
        FIT + " --seed 1.5",
        "--seed must be an integer; got '1.5'. Try: fferm fit --help",
    ),
    (
        "a group size of 0",
        {},
        FIT + " --min-group-size 0",
        "--min-group-size must be an integer of at least 1; got 0.",
    ),
    (
        "a group size that leaves none",
        {},
        FIT + " --min-group-size 100",
        "No part of the data holds two groups, so there is nothing to be fair "
        "between. Check sensitive_features, or set fairness_weight=0.",
    ),
    # Where to write
    (
        "a folder that is not there",
        {},
        FIT.replace("--out model", "--out nowhere/model"),
        "nowhere/model cannot be written: nowhere is not a folder. Make it first.",
    ),
    (
        "a folder as the model",
        {},
        FIT.replace("--out model", "--out folder"),
        "folder is a folder. Name a file to write.",
    ),
    (
        "the data as the model",
        {},
        FIT.replace("--out model", "--out loans.csv"),
        "loans.csv is the input itself. Name another file.",
    ),
    (
        "a file as the folder of records",
        {},
        CURVE.replace("records", "loans.csv"),
        "loans.csv is a file. Name a folder.",
    ),
    (
        "records in no folder",
        {},
        CURVE.replace("records", "nowhere/records"),
        "nowhere/records cannot be written: nowhere is not a folder. Make it first.",
    ),
    (
        "predictions over the data",
        {},
        "predict good.fferm loans.csv --out loans.csv",
        "loans.csv is the input itself. Name another file.",
    ),
    (
        "predictions over the model",
        {},
        "predict good.fferm loans.csv --out good.fferm",
        "good.fferm is the input itself. Name another file.",
    ),
    (
        "predictions as a spreadsheet",
        {},
        "predict good.fferm loans.csv --out p.xlsx",
        "p.xlsx must end in .csv or .parquet.",
    ),
    (
        "predictions in no folder",
        {},
        "predict good.fferm loans.csv --out nowhere/p.csv",
        "nowhere/p.csv cannot be written: nowhere is not a folder. Make it first.",
    ),
    (
        "a page over the data",
        {},
        "audit good.fferm loans.csv --html loans.csv",
        "loans.csv is the input itself. Name another file.",
    ),
    (
        "a page in no folder",
        {},
        "audit good.fferm loans.csv --html nowhere/page.html",
        "nowhere/page.html cannot be written: nowhere is not a folder. Make it first.",
    ),
    (
        "a page that is a folder",
        {},
        "report audit.json --out folder",
        "folder is a folder. Name a file to write.",
    ),
    # Models
    (
        "no such model",
        {},
        "audit none.fferm loans.csv",
        "Cannot read none.fferm (No such file or directory). Name a file that "
        "fferm.save or `fferm fit` wrote.",
    ),
    (
        "a folder as the model to audit",
        {},
        "audit folder loans.csv",
        "Cannot read folder (Is a directory). Name a file that fferm.save or `fferm"
        " fit` wrote.",
    ),
    (
        "data in place of the model",
        {},
        "audit loans.csv loans.csv",
        "loans.csv is not a saved fferm model (File is not a zip file). Name a file"
        " that fferm.save or `fferm fit` wrote.",
    ),
    (
        "model and data the other way round",
        {},
        "predict loans.csv good.fferm --out p.csv",
        "loans.csv is not a saved fferm model (File is not a zip file). Name a file"
        " that fferm.save or `fferm fit` wrote.",
    ),
    (
        "a corrupt model",
        {"cut.fferm": CUT},
        "audit cut.fferm loans.csv",
        "cut.fferm is not a saved fferm model (File is not a zip file). Name a file"
        " that fferm.save or `fferm fit` wrote.",
    ),
    (
        "a changed model",
        {"odd.fferm": ODD},
        "audit odd.fferm loans.csv",
        "odd.fferm was changed: Bad CRC-32 for file 'manifest.json'. Get it from "
        "its source again.",
    ),
    (
        "a model of arrays to audit",
        {},
        "audit arrays.fferm loans.csv",
        "arrays.fferm was trained on arrays without names, so it does not know the "
        "columns of a table. Train it on a table, or audit it from Python.",
    ),
    (
        "a model of arrays to predict",
        {},
        "predict arrays.fferm loans.csv --out p.csv",
        "arrays.fferm was trained on arrays without names, so it does not know the "
        "columns of a table. Train it on a table, or predict from Python.",
    ),
    (
        "a model for other columns",
        {"f.csv": "a,b\n1,2\n"},
        "predict good.fferm f.csv --out p.csv",
        "The data have no column 'age', the column that the model predicts from. "
        "Did you mean 'a'? Columns: a, b.",
    ),
    (
        "a model that lacks a column",
        {"f.csv": NOAGE},
        "audit good.fferm f.csv",
        "The data have no column 'age', the column that the model predicts from. "
        "Did you mean 'guess'? Columns: id, city, sex, salary, granted, decision, "
        "chance, guess.",
    ),
    (
        "a model for other labels",
        {"f.csv": OTHER},
        "audit good.fferm f.csv",
        "The target 'granted' contains 'maybe', which is not a label of training: "
        "'no', 'yes'.",
    ),
    (
        "words where the model knows numbers",
        {"f.csv": WORDS},
        "predict good.fferm f.csv --out p.csv",
        "Column 'age' contains 'old'. It must hold numbers, as in training; correct"
        " the data, or train again.",
    ),
    (
        "no such data to predict",
        {},
        "predict good.fferm new.csv --out p.csv",
        "new.csv does not exist. Name a CSV or Parquet file, or one of the data "
        "sets adult, german, compas, acs_income, gov_census.",
    ),
    (
        "an unknown column to keep",
        {},
        "predict good.fferm loans.csv --out p.csv --keep ids",
        "The data have no column 'ids', the column to keep. Did you mean 'id'? "
        "Columns: id, age, city, sex, salary, granted, decision, chance, guess.",
    ),
    (
        "no place for predictions",
        {},
        "predict good.fferm loans.csv",
        "Missing option '--out'. Try: fferm predict --help",
    ),
    # Audits
    (
        "an audit without data",
        {},
        "audit good.fferm",
        "Missing argument DATA. Name a table: fferm audit MODEL DATA; or the column"
        " of predictions in a table: fferm audit DATA --prediction NAME.",
    ),
    (
        "an audit of nothing",
        {},
        "audit",
        "Missing argument 'MODEL'. Try: fferm audit --help",
    ),
    (
        "a target of a model",
        {},
        "audit good.fferm loans.csv --target granted",
        "--target cannot be used with a model, which knows its columns and its "
        "task. Leave it out, or name the column of predictions: --prediction NAME.",
    ),
    (
        "a sensitive column of a model",
        {},
        "audit good.fferm loans.csv --sensitive sex",
        "--sensitive cannot be used with a model, which knows its columns and its "
        "task. Leave it out, or name the column of predictions: --prediction NAME.",
    ),
    (
        "a task of a model",
        {},
        "audit good.fferm loans.csv --task regression",
        "--task cannot be used with a model, which knows its columns and its task. "
        "Leave it out, or name the column of predictions: --prediction NAME.",
    ),
    (
        "an audit of an unknown notion",
        {},
        "audit good.fferm loans.csv --notion karma",
        "Unknown notion 'karma'. Known: conditional_parity, demographic_parity, "
        "equal_opportunity, equalized_odds, false_positive_rate_parity, "
        "predictive_parity, sufficiency.",
    ),
    (
        "an audit of classes by a metric",
        {},
        "audit good.fferm loans.csv --metric wasserstein",
        "--metric needs predictions of numbers, but these are classes. Use --notion.",
    ),
    (
        "an audit by a bound above 1",
        {},
        "audit good.fferm loans.csv --max-violation 7",
        "--max-violation must be between 0 and 1; got 7.0.",
    ),
    (
        "an audit by a bound in words",
        {},
        "audit good.fferm loans.csv --max-violation low",
        "--max-violation must be a number; got 'low'. Try: fferm audit --help",
    ),
    (
        "an audit confident in nothing",
        {},
        "audit good.fferm loans.csv --confidence 0.95",
        "--confidence needs --max-violation.",
    ),
    (
        "predictions and a model",
        {},
        GIVEN.replace("loans.csv", "good.fferm loans.csv"),
        "DATA cannot be a second file, because --prediction audits good.fferm. "
        "Leave out the model, or --prediction.",
    ),
    (
        "predictions without a target",
        {},
        GIVEN.replace(" --target granted", ""),
        "--target is missing. Name the column, for example --target NAME.",
    ),
    (
        "predictions without groups",
        {},
        GIVEN.replace(" --sensitive sex", ""),
        "--sensitive is missing. Name the column, for example --sensitive NAME.",
    ),
    (
        "predictions that are no column",
        {},
        GIVEN.replace("decision", "decison"),
        "The data have no column 'decison', the column to audit. Did you mean "
        "'decision'? Columns: id, age, city, sex, salary, granted, decision, "
        "chance, guess.",
    ),
    (
        "probabilities that are words",
        {},
        GIVEN.replace("--prediction decision", "--probability city"),
        "Column 'city' must be numbers; got 'Oslo'. Name another column.",
    ),
    (
        "probabilities above 1",
        {},
        GIVEN.replace("--prediction decision", "--probability age"),
        "prob has rows that are negative, missing or do not sum to 1. Pass "
        "probabilities; turn scores into them with a softmax first.",
    ),
    (
        "probabilities of numbers",
        {},
        "audit loans.csv --probability chance --target salary --sensitive sex",
        "The target 'salary' contains fractional numbers such as 47.841, not "
        "classes. Cut it into bands, or predict a number.",
    ),
    (
        "probabilities of a regression",
        {},
        NUMBERS.replace("--prediction guess", "--probability chance")
        + " --task regression",
        "--probability needs a target of classes.",
    ),
    (
        "other labels than predictions",
        {},
        GIVEN.replace("decision", "city"),
        "y_pred must hold labels of y_true, such as 'yes'; got 'Oslo' and no label "
        "that both have. Pass other predictions.",
    ),
    (
        "words as predictions of numbers",
        {},
        NUMBERS.replace("guess", "city"),
        "Column 'city' must be numbers; got 'Oslo'. Name another column.",
    ),
    (
        "a notion of predicted numbers",
        {},
        NUMBERS + " --notion equalized_odds",
        "--notion needs predictions of classes, but these are numbers. Use --metric.",
    ),
    (
        "a bound below 0 on numbers",
        {},
        NUMBERS + " --max-violation -1",
        "--max-violation must be between 0 and 1; got -1.0.",
    ),
    (
        "a metric of a number by groups",
        {},
        NUMBERS + " --metric correlation",
        "'correlation' was not measured. Measured: kolmogorov_smirnov, mean_gap, "
        "wasserstein, for sex.",
    ),
    (
        "an unknown metric of numbers",
        {},
        NUMBERS + " --metric ks",
        "Unknown measure 'ks'. Known: correlation, distance_correlation, "
        "f_information, kolmogorov_smirnov, maximal_correlation, mean_gap, "
        "wasserstein.",
    ),
    (
        "groups that are too small",
        {},
        GIVEN + " --min-group-size 100",
        "Every group is smaller than min_group_size: f (60 rows), m (60 rows). Lower "
        "it.",
    ),
    (
        "predictions that lack rows",
        {"f.csv": GAPS},
        GIVEN.replace("loans.csv", "f.csv"),
        "Column 'decision' has 4 gaps. Drop those rows first.",
    ),
    # Curves, reports, data sets, figures
    (
        "a curve of one weight",
        {},
        CURVE + " --weights 1",
        "--weights must be an integer of at least 2; got 1.",
    ),
    (
        "a curve of no seeds",
        {},
        CURVE + " --seeds 0",
        "--seeds must be an integer of at least 1; got 0.",
    ),
    (
        "a curve of no processes",
        {},
        CURVE + " --jobs 0",
        "--jobs must be an integer of at least 1; got 0.",
    ),
    (
        "a curve of an unknown divergence",
        {},
        CURVE + " --divergence kl --divergence chi",
        "Unknown divergence 'chi'. Did you mean 'chi2'? Known: affine, alpha, chi2,"
        " jensen_shannon, kl, linear_tail, reverse_kl, squared_hellinger, "
        "total_variation.",
    ),
    (
        "a curve of an unknown notion",
        {},
        CURVE + " --notion parity",
        "Unknown notion 'parity'. Did you mean 'predictive_parity'? Known: "
        "conditional_parity, demographic_parity, equal_opportunity, equalized_odds,"
        " false_positive_rate_parity, predictive_parity, sufficiency.",
    ),
    (
        "a curve of a misspelled column",
        {},
        CURVE.replace("granted", "grante"),
        "The data have no column 'grante', the target. Did you mean 'granted'? "
        "Columns: id, age, city, sex, salary, granted, decision, chance, guess.",
    ),
    (
        "a curve of a negative seed",
        {},
        CURVE + " --seed -1",
        "--seed must be an integer between 0 and 4294967295; got -1.",
    ),
    (
        "a curve with a bound",
        {},
        CURVE + " --max-violation 0.1",
        "No such option: --max-violation (Possible options: --notion). Try: fferm "
        "curve --help",
    ),
    (
        "a curve of a group size of 0",
        {},
        CURVE + " --min-group-size 0",
        "--min-group-size must be an integer of at least 1; got 0.",
    ),
    (
        "nothing to report on",
        {},
        "report nowhere",
        "nowhere does not exist. Name the folder of a curve, or a file that `fferm "
        "audit --json` wrote.",
    ),
    (
        "a report on a folder of no records",
        {},
        "report folder",
        "folder does not contain records of a sweep. Pass the folder that "
        "tradeoff_curve(..., records=...) wrote to.",
    ),
    (
        "a report on a table",
        {},
        "report loans.csv",
        "loans.csv is not JSON (Expecting value: line 1 column 1 (char 0)). Name "
        "the folder of a curve, or a file that `fferm audit --json` wrote.",
    ),
    (
        "a report on another JSON",
        {"f.json": "{}"},
        "report f.json",
        "These values are not an audit. Pass what Audit.to_dict() or `fferm audit "
        "--json` returns.",
    ),
    (
        "a report on a list",
        {"f.json": "[1]"},
        "report f.json",
        "f.json is not an audit. Name the folder of a curve, or a file that `fferm "
        "audit --json` wrote.",
    ),
    (
        "a report over its source",
        {},
        "report audit.json --out audit.json",
        "audit.json is the input itself. Name another file.",
    ),
    (
        "a report against a bound in words",
        {},
        "report audit.json --out r.html --max-violation low",
        "--max-violation must be a number; got 'low'. Try: fferm report --help",
    ),
    (
        "a report against a bound below 0",
        {},
        "report audit.json --out r.html --max-violation -1",
        "max_violation must be between 0 and 1; got -1.0.",
    ),
    (
        "a report on nothing",
        {},
        "report",
        "Missing argument 'RECORDS'. Try: fferm report --help",
    ),
    (
        "an unknown figure",
        {},
        "reproduce fig9 --out o",
        "Unknown experiment 'fig9'. Did you mean 'fig5'? Known: abcfair, aequitas, "
        "fig1, fig2, fig3, fig4, fig5, humancompatible, postprocessing.",
    ),
    (
        "a size of a figure",
        {},
        "reproduce fig1 --size medium --out o",
        "--size must be one of small, full; got 'medium'. Try: fferm reproduce --help",
    ),
    (
        "an unknown method of a figure",
        {},
        "reproduce fig1 --only me --out o",
        "Unknown method 'me'. Known: f-FERM, KL, f-FERM, reverse KL, f-FERM, "
        "chi-square (FERMI), f-FERM, Jensen-Shannon, f-FERM, squared Hellinger, "
        "f-FERM, total variation, Baharlouei et al. (Rényi), Mary et al. (kernel "
        "chi-square), Cho et al. (kernel density).",
    ),
    (
        "a figure on no processes",
        {},
        "reproduce fig1 --jobs 0 --out o",
        "--jobs must be an integer of at least 1; got 0.",
    ),
    (
        "a figure in no folder",
        {},
        "reproduce fig1 --out loans.csv",
        "loans.csv is a file. Name a folder.",
    ),
    (
        "an option of data sets",
        {},
        "datasets --all",
        "No such option: --all. Try: fferm datasets --help",
    ),
    (
        "an argument of data sets",
        {},
        "datasets adult",
        "Got unexpected extra argument(s) (adult). Try: fferm datasets --help",
    ),
    (
        "another target of Adult",
        {},
        "fit adult --target age --out model",
        "--target must be income for the data set adult; got age.",
    ),
    (
        "a column that Adult lacks",
        {},
        "fit adult --sensitive gender --out model",
        "Unknown sensitive column 'gender'. Known: sex, race, age.",
    ),
    (
        "a misspelled data set",
        {},
        "fit adutl --target income --sensitive sex --out model",
        "adutl does not exist. Name a CSV or Parquet file, or one of the data sets "
        "adult, german, compas, acs_income, gov_census.",
    ),
    (
        "a model of others on a data set",
        {},
        "audit good.fferm adult",
        "The target 'income' contains '0', which is not a label of training: 'no', "
        "'yes'.",
    ),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The files that every command line finds."""
    home = tmp_path_factory.mktemp("shared")
    TABLE.to_csv(home / "loans.csv", index=False)
    rows = {"X": TABLE[["age", "city", "sex"]], "y": TABLE["granted"]}
    rows["sensitive_features"] = TABLE[["sex"]]
    model = fferm.FairLogisticRegression(fairness_weight=1).fit(**rows)
    fferm.save(model, home / "good.fferm")
    audit = fferm.audit(model, **rows, n_bootstrap=0).to_dict()
    (home / "audit.json").write_text(json.dumps(audit))
    arrays = TABLE[["age"]].to_numpy(), TABLE["granted"].to_numpy()
    model = fferm.FairLogisticRegression(fairness_weight=0).fit(*arrays)
    fferm.save(model, home / "arrays.fferm")
    return {path.name: path.read_bytes() for path in home.iterdir()}


@pytest.fixture
def place(shared, monkeypatch, tmp_path):
    """A folder to work in, with an empty folder and the files of `shared`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FFERM_DATA_HOME", str(tmp_path / "no data"))
    Path("folder").mkdir()
    for name, content in shared.items():
        Path(name).write_bytes(content)
    return tmp_path


def files_of(place):
    paths = [path for path in place.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in paths}


@pytest.mark.usefixtures("only_ours")
@pytest.mark.parametrize(
    ("files", "line", "message"),
    [mistake[1:] for mistake in MISTAKES],
    ids=[mistake[0] for mistake in MISTAKES],
)
def test_a_mistake_is_answered_by_one_line(files, line, message, place, shared, call):
    model = shared["good.fferm"]
    made = {CUT: model[:500], ODD: model.replace(b"Fair", b"Fear", 1)}
    for name, given in files.items():
        content = made.get(given, given)
        Path(name).write_bytes(
            content if isinstance(content, bytes) else content.encode()
        )
    before = files_of(place)
    done = call(*line.split())
    assert (done.code, done.out) == (2, "")
    *others, last = done.err.splitlines()
    assert last == f"error: {message}"
    assert all(each.startswith(("note: ", "warning: ")) for each in others)
    assert files_of(place) == before, "something was half written"


def test_there_are_a_hundred_different_mistakes():
    assert len({mistake[0] for mistake in MISTAKES}) == len(MISTAKES) >= 100


def test_a_command_without_anything_shows_its_help(call):
    done = call()
    assert (done.code, done.err) == (0, "")
    assert done.out == call("--help").out


def test_an_interrupted_curve_says_how_to_resume(place, call, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fferm.cli.curve.tradeoff_curve", stop)
    done = call(*CURVE.split())
    assert (done.code, done.err) == (130, "interrupted; the same command resumes\n")


@pytest.mark.parametrize("command", program.COMMANDS)
def test_help_has_an_example_and_the_values_to_choose_from(command, call):
    text = " ".join(call(command, "--help").out.split())
    assert f"Example: fferm {command}" in text
    for option, values in (
        ("--notion", ("equalized_odds", "predictive_parity")),
        ("--divergence", ("jensen_shannon", "total_variation")),
        ("--measure", ("difference", "ratio", "deviation")),
    ):
        if f" {option} " in text:
            assert all(value in text for value in values)


@pytest.mark.parametrize(
    ("values", "taken"),
    [
        (
            range(120),
            "a regression predicts it; for classes pass --task classification",
        ),
        ([*range(40)] * 3, "as 40 classes; to predict a number pass --task regression"),
    ],
)
def test_how_a_target_of_many_numbers_is_taken_is_said(values, taken, place, call):
    TABLE.assign(n=values).to_csv("numbers.csv", index=False)
    line = "fit numbers.csv --target n --sensitive sex --out model --drop id"
    done = call(*line.split())
    n_values = len(set(values))
    said = f"note: The target 'n' has {n_values} distinct numbers: {taken}.\n"
    assert done.err.startswith(said)
