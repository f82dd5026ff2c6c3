"""`transis package-job`: what `spark-submit` needs to run the audit on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from transis.cli.admin import unable
from transis.types.errors import PipelineError

PACKAGE_JOB_EXAMPLES = """Examples:

transis package-job [dim]# transis-job.zip and audit_job.py, here[/dim]

transis package-job --out job && cd job && spark-submit --master spark://host:7077 --py-files transis-job.zip audit_job.py DIR
"""


def package_job(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write the two files; made if it is not there.")] = Path(),
) -> None:
    """Write the audit as a job for a Spark cluster: a zip of this package and a program that starts it.

    The Python of every machine of the cluster needs msgspec, numpy and pyarrow (docs/pipeline.md).
    """
    from transis.pipeline.packaging import write_job

    try:
        archive, entry = write_job(out)
    except PipelineError as error:
        raise unable("package-job", error) from None
    print(f"spark-submit --master spark://HOST:7077 --py-files {archive} {entry} DIR")
