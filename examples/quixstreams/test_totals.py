"""The state survives: an application that starts anew without its files reads them from the changelog topic."""

from totals import made_app


def test_totals_go_on_after_the_state_was_lost(kafka, tmp_path):
    kafka.produce("orders", '{"cents": 100}', '{"cents": 20}', key="ann")
    made_app(kafka.bootstrap_servers, str(tmp_path / "one")).run(count=2, timeout=60)
    kafka.produce("orders", '{"cents": 3}', key="ann")
    made_app(kafka.bootstrap_servers, str(tmp_path / "two")).run(count=1, timeout=60)

    totals = kafka.expect("totals", 3)  # of committed transactions only
    assert [total.json["cents"] for total in totals] == [100, 120, 123]
