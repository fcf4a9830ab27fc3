"""The server: what it answers, to whom, and what it says when it cannot."""

import gzip

import pytest

from h100sim.errors import UsageError
from viz import app, wire


@pytest.fixture(scope="module")
def client(replay):
    return app.create_app(replay).server.test_client()


def test_a_recording_comes_as_a_packed_block(client):
    answer = client.get("/h100sim/recording/1")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert wire.decode(gzip.decompress(answer.data))["header"]["cta"] == 1


def test_an_unknown_cta_is_answered_in_words(client):
    answer = client.get("/h100sim/recording/99")
    assert (answer.status_code, answer.text) == (404, "CTA must be one of the 2 in the trace, not 99")


def test_a_tile_comes_as_bytes(client):
    assert len(client.get("/h100sim/tile/0/0/400").json["bytes"]) == 4 * -(-16384 // 3)
    assert client.get("/h100sim/tile/0/99/400").status_code == 404


def test_a_trace_without_memory_has_no_tiles(trace):
    client = app.create_app(trace).server.test_client()
    answer = client.get("/h100sim/tile/0/0/1")
    assert (answer.status_code, answer.text) == (404, "this trace carries no memory")


def test_a_defect_of_the_replay_is_answered_in_one_line(made, trace):
    class Broken(made.FilledReplay):
        def shared_at(self, event_index, cta):
            raise ValueError("two shapes")

    answer = app.create_app(Broken(trace)).server.test_client().get("/h100sim/tile/0/0/400")
    assert (answer.status_code, answer.text) == (500, "ValueError: two shapes")


@pytest.mark.parametrize("host", ["127.0.0.1:8050", "localhost:8050", "[::1]:8050"])
def test_loopback_names_are_served(client, host):
    assert client.get("/h100sim/ctas", headers={"Host": host}).json["cta"] == [0, 1]


def test_a_page_of_another_name_is_refused(client):
    assert client.get("/h100sim/ctas", headers={"Host": "evil.example:8050"}).status_code == 403


def test_a_taken_port_is_refused_by_name(replay):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"^port must be free, not {port} \(address already in use\)$"):
            app.serve(replay, port=port)


def test_serve_prints_where_and_how_to_reach_it(replay, monkeypatch, capsys):
    monkeypatch.setattr(app, "_quiet_run", lambda dash_app, port: None)
    app.serve(replay, port=0)
    printed = capsys.readouterr().out
    assert "http://127.0.0.1:0/" in printed and "ssh -L 0:127.0.0.1:0 " in printed
