"""Revenue by region and month, and the best product of each region, from a CSV file.

Money is counted in cents; a row that cannot be read ends the program with exit code 2 and names its line.
"""

import csv
import sys
from collections import defaultdict

COLUMNS = ["day", "region", "product", "units", "unit_price_cents"]


def read(path):
    """Yields (month, region, product, cents) for each row."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != COLUMNS:
            raise ValueError(f"{path}: expected the columns {', '.join(COLUMNS)}")
        for row in rows:
            try:
                cents = int(row["units"]) * int(row["unit_price_cents"])
            except (TypeError, ValueError):
                raise ValueError(f"{path}:{rows.line_num}: units and price must be whole numbers") from None
            yield row["day"][:7], row["region"], row["product"], cents


def money(cents):
    return f"{cents // 100:,}.{cents % 100:02d}"


def report(path):
    by_month = defaultdict(lambda: defaultdict(int))
    by_product = defaultdict(lambda: defaultdict(int))
    count = 0
    for month, region, product, cents in read(path):
        by_month[region][month] += cents
        by_product[region][product] += cents
        count += 1
        if count % 200 == 0:
            print(f"{count} rows read", file=sys.stderr)

    months = sorted({month for region in by_month.values() for month in region})
    print(f"{'region':<8}" + "".join(f"{month:>14}" for month in months) + f"{'total':>16}  best product")
    total = 0
    for region in sorted(by_month):
        row = by_month[region]
        best = max(sorted(by_product[region]), key=by_product[region].__getitem__)
        print(
            f"{region:<8}"
            + "".join(f"{money(row[month]):>14}" for month in months)
            + f"{money(sum(row.values())):>16}  {best}"
        )
        total += sum(row.values())
    print(f"{count} sales, {money(total)} in total")


if __name__ == "__main__":
    try:
        report(sys.argv[1])
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
