"""Audit all results, and write what was found as a page; fail if anything was."""

from tokensphere.harness.job import job

with job(snakemake) as run:
    from pathlib import Path

    from tokensphere import audit, chain, hashes
    from tokensphere.harness.errors import UserError

    report = audit.verify(chain.read(), audit.workflow_folder(run.params.where["workflow"]))
    # Not an output: what a failed job made is deleted, and this page is for when it fails.
    page = Path(run.params.where["page"])
    hashes.write_atomically(page, audit.page(Path(run.input.template), report))
    if report.findings:
        raise UserError(
            str(page),
            f"findings: {len(report.findings)}; {len(report.broken)} of {len(report.figures)} "
            "figures do not hold",
            "read the page, or `tokensphere verify`; what is stale, the workflow makes anew, "
            "and a result that was changed too, once it is deleted",
        )
