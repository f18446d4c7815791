"""The routes of the management API, put together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.etl_jobs.jobs import Jobs
from broker.etl_jobs.routes import add_etl_jobs
from broker.management.altering import add_altering
from broker.management.bindings import add_bindings
from broker.management.browsing import add_browsing
from broker.management.connections import add_connections
from broker.management.definers import add_definers
from broker.management.definitions_export import add_export
from broker.management.definitions_import import add_import
from broker.management.exchanges import add_exchanges
from broker.management.getting import add_getting
from broker.management.health import add_health_checks
from broker.management.metric_objects import add_metric_objects
from broker.management.metrics import add_metrics
from broker.management.nodes import add_nodes
from broker.management.odds import add_odds
from broker.management.openapi import add_openapi
from broker.management.overview import add_overview
from broker.management.parameters import add_parameters
from broker.management.publishing import add_publishing
from broker.management.queues import add_queues
from broker.management.sampler import Sampler
from broker.management.site import Site
from broker.management.vhost_figures import add_vhost_figures
from broker.management.whereabouts import Whereabouts

if TYPE_CHECKING:
    from broker.cluster.cluster import Cluster
    from broker.http.admin import Admin
    from broker.http.router import Router
    from broker.management.site import Addresses
    from broker.node import Node


def add_management(
    admin: Admin, router: Router, node: Node, cluster: Cluster | None, addresses: Addresses
) -> Sampler:
    """`addresses` are those that the node listens at. What takes the samples has to be run."""
    where = Whereabouts(node, cluster)
    started_ms = node.timers.now_ms()
    site = Site(node=node, where=where, addresses=addresses, started_ms=started_ms)
    sampler = Sampler(node, where)
    add_overview(admin, sampler, site)
    add_nodes(admin, sampler, site)
    add_queues(admin, where, sampler)
    add_exchanges(admin, sampler)
    add_bindings(admin)
    add_definers(admin)
    add_publishing(admin)
    add_getting(admin)
    add_browsing(admin)
    add_altering(admin)
    add_connections(admin, sampler)
    add_parameters(admin, site)
    add_vhost_figures(admin, sampler)
    add_export(admin)
    add_import(admin)
    add_health_checks(admin, site)
    add_odds(admin, sampler)
    jobs = Jobs()
    add_etl_jobs(admin, jobs)
    add_metrics(router, node, sampler, site, jobs)
    add_metric_objects(admin)
    add_openapi(admin)
    return sampler
