"""In a cluster a job reports to any node, and every node lists it."""

from tests.cluster.nodes import Cluster
from tests.cluster.proxy import HOST
from tests.support.admin import Api


def test_every_node_shows_the_latest_news_and_forgets_with_the_others(tmp_path) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.start()
        first, second, third = (Api(HOST, node.ports["http"]) for node in cluster.nodes.values())
        path = ("etl", "jobs")
        assert first.call("PUT", *path, "a", body={"state": "running"}).status == 201
        assert second.call("PUT", *path, "b", body={"state": "running"}).status == 201
        news = {"state": "alarm", "errors": 5}
        assert second.call("PUT", *path, "a", body=news).status == 201
        while first.call("GET", *path, "a").json["errors"] != 5:  # within the same millisecond
            assert second.call("PUT", *path, "a", body=news).status == 204
        for api in (first, second, third):
            rows = [(row["name"], row["state"]) for row in api.call("GET", *path).json]
            assert rows == [("a", "alarm"), ("b", "running")]
            assert api.call("GET", *path, "a").json["errors"] == 5
        assert third.call("DELETE", *path, "a").status == 204
        assert first.call("GET", *path, "a").status == 404
        assert third.call("DELETE", *path, "a").status == 404
        for api in (first, second, third):
            api.close()
    cluster.wipe()
