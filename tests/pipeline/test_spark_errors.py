"""Reasons in what a JVM wrote that did not start. Those in Spark's errors are in `test_pipeline_shared`."""

from __future__ import annotations

import pytest

from minibroker.pipeline.spark_errors import find_reason, find_start_error

HEAP = """Picked up JAVA_TOOL_OPTIONS: -Dx=y
Invalid maximum heap size: -Xmxfoo
Error: Could not create the Java Virtual Machine.
Error: A fatal exception has occurred. Program will exit.
"""
SMALL = """Error occurred during initialization of VM
Too small maximum heap
"""
SUBMIT = """:: loading settings :: url = jar:file:/jars/ivy.jar!/ivysettings.xml
Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]
\tat org.apache.spark.util.MavenUtils$.resolveMavenCoordinates(MavenUtils.scala:539)
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAP, "Invalid maximum heap size: -Xmxfoo"),
        (SMALL, "Too small maximum heap"),
        (SUBMIT, "[unresolved dependency: a#b;1: not found]"),
        ("", "Java says nothing"),
    ],
)
def test_the_reason_of_a_failed_jvm_start_is_reported(text: str, reason: str) -> None:
    assert find_start_error(text) == reason


def test_rejections_of_a_spark_connect_server_are_reported() -> None:
    text = """<_InactiveRpcError of RPC that terminated with:
\tstatus = StatusCode.UNAUTHENTICATED
\tdetails = "No authentication token provided"
\tdebug_error_string = "UNKNOWN:Error received from peer ipv4:127.0.0.1:15002"
>"""
    assert find_reason(text) == "UNAUTHENTICATED: No authentication token provided"
