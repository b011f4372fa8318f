"""Put every figure and companion on one sheet, small, to see all of them at once."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from pathlib import Path

    from tokensphere.drawing import contact_sheet

    figures = [Path(path) for path in run.input.figures]
    contact_sheet.write(run.output.png, figures, stamp=run.stamp)
