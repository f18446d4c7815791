"""Who may call which route of the HTTP port: one line for each, and there is none without a line.

    METHOD PATH    whom    the vhost    needs

Whom: `open` to everybody; `anyone` who logs in; `management`, any of RabbitMQ's tags;
`policymaker`, `monitoring` or `administrator`, which the last always is as well.
The vhost, where the path names one: `sees`: theirs, or monitors look at it; `keeps`: theirs, or
administrators look after it; `enters`: theirs, whatever their tags. Else: nobody asks whose it is.
Needs: permissions, as action:name, each of which has to be there. `x`, `q`, `stream` and so on are
what the test has made.
"""
# ruff: noqa: E501 - a table

MATRIX = """
GET    /health                                              open
GET    /metrics                                             open
GET    /                                                    open
POST   /api/login                                           open
DELETE /api/login                                           anyone
GET    /metrics/per-object                                  monitoring
GET    /api/openapi.json                                    management
GET    /api/overview                                        management
GET    /api/whoami                                          management
GET    /api/auth                                            management
GET    /api/extensions                                      management
GET    /api/feature-flags                                   administrator
DELETE /api/reset                                           administrator
GET    /api/aliveness-test/{vhost}                          management  enters  configure:aliveness-test read:aliveness-test write:amq.default
GET    /api/nodes                                           monitoring
GET    /api/nodes/{name}                                    monitoring
GET    /api/nodes/{name}/memory                             monitoring
GET    /api/health/checks/alarms                            management
GET    /api/health/checks/local-alarms                      management
GET    /api/health/checks/port-listener/{port}              management
GET    /api/health/checks/protocol-listener/{protocol}      management
GET    /api/health/checks/certificate-expiration/{within}/{unit}  management
GET    /api/health/checks/virtual-hosts                     management
GET    /api/health/checks/node-is-quorum-critical           management
GET    /api/health/checks/node-is-mirror-sync-critical      management
GET    /api/healthchecks/node                               management
GET    /api/healthchecks/node/{node}                        monitoring

GET    /api/queues                                          management
GET    /api/queues/{vhost}                                  management  sees
GET    /api/queues/{vhost}/{name}                           management  sees
PUT    /api/queues/{vhost}/{name}                           management  enters  configure:q
PATCH  /api/queues/{vhost}/{name}                           management  enters  configure:q
DELETE /api/queues/{vhost}/{name}                           management  enters  configure:q
GET    /api/queues/{vhost}/{name}/bindings                  management  sees
DELETE /api/queues/{vhost}/{name}/contents                  management  enters  read:q
POST   /api/queues/{vhost}/{name}/actions                   management  keeps
POST   /api/queues/{vhost}/{name}/get                       management  enters  read:q
GET    /api/queues/{vhost}/{name}/messages                  management  enters  read:q
GET    /api/queues/{vhost}/{name}/messages/{id}             management  enters  read:q
DELETE /api/queues/{vhost}/{name}/messages/{id}             management  enters  read:q
POST   /api/queues/{vhost}/{name}/messages/{id}/move        management  enters  read:q write:p
GET    /queues/{name}/config                                management  sees
GET    /api/exchanges                                       management
GET    /api/exchanges/{vhost}                               management  sees
GET    /api/exchanges/{vhost}/{name}                        management  sees
PUT    /api/exchanges/{vhost}/{name}                        management  enters  configure:x
DELETE /api/exchanges/{vhost}/{name}                        management  enters  configure:x
GET    /api/exchanges/{vhost}/{name}/bindings/source        management  sees
GET    /api/exchanges/{vhost}/{name}/bindings/destination   management  sees
POST   /api/exchanges/{vhost}/{name}/publish                management  enters  write:x
GET    /api/bindings                                        management
GET    /api/bindings/{vhost}                                management  sees
GET    /api/bindings/{vhost}/e/{source}/q/{destination}     management  sees
POST   /api/bindings/{vhost}/e/{source}/q/{destination}     management  enters  read:x write:q
GET    /api/bindings/{vhost}/e/{source}/q/{destination}/{key}  management  sees
DELETE /api/bindings/{vhost}/e/{source}/q/{destination}/{key}  management  enters  read:x write:q
GET    /api/bindings/{vhost}/e/{source}/e/{destination}     management  sees
POST   /api/bindings/{vhost}/e/{source}/e/{destination}     management  enters  read:x write:y
GET    /api/bindings/{vhost}/e/{source}/e/{destination}/{key}  management  sees
DELETE /api/bindings/{vhost}/e/{source}/e/{destination}/{key}  management  enters  read:x write:y

GET    /api/connections                                     management
GET    /api/connections/{name}                              management
DELETE /api/connections/{name}                              management
GET    /api/connections/{name}/channels                     management
GET    /api/connections/username/{user}                     management
DELETE /api/connections/username/{user}                     management
GET    /api/vhosts/{vhost}/connections                      management  sees
GET    /api/channels                                        management
GET    /api/channels/{name}                                 management
GET    /api/vhosts/{vhost}/channels                         management  sees
GET    /api/consumers                                       management
GET    /api/consumers/{vhost}                               management  sees

GET    /api/dlq                                             management
GET    /api/dlq/{vhost}                                     management  sees
GET    /api/dlq/{vhost}/{name}                              management  enters  read:q
POST   /api/dlq/{vhost}/{name}/replay                       management  enters  read:q
POST   /api/dlq/{vhost}/{name}/drop                         management  enters  read:q
GET    /api/scheduled                                       management
GET    /api/scheduled/{vhost}                               management  sees
GET    /api/scheduled/{vhost}/{name}                        management  enters  read:q
PUT    /api/scheduled/{vhost}/{name}/{id}                   management  enters  read:q
DELETE /api/scheduled/{vhost}/{name}/{id}                   management  enters  read:q
GET    /api/streams                                         management
GET    /api/streams/{vhost}                                 management  sees
GET    /api/streams/{vhost}/{name}                          management  sees
GET    /api/streams/{vhost}/{name}/offsets                  management  sees
GET    /api/streams/{vhost}/{name}/records                  management  enters  read:stream
GET    /api/streams/{vhost}/{name}/staged                   management  enters  read:stream
DELETE /api/streams/{vhost}/{name}/staged                   management  enters  write:stream
GET    /api/stream-groups/{vhost}                           management  sees
GET    /api/stream-groups/{vhost}/{group}                   management  sees
POST   /api/stream-groups/{vhost}/{group}/offsets           management  enters  read:stream read:group

GET    /api/policies                                        management
GET    /api/policies/{vhost}                                management  sees
GET    /api/policies/{vhost}/{name}                         policymaker sees
PUT    /api/policies/{vhost}/{name}                         policymaker keeps
DELETE /api/policies/{vhost}/{name}                         policymaker keeps
GET    /api/operator-policies                               management
GET    /api/operator-policies/{vhost}                       management  sees
GET    /api/operator-policies/{vhost}/{name}                administrator
PUT    /api/operator-policies/{vhost}/{name}                administrator
DELETE /api/operator-policies/{vhost}/{name}                administrator
GET    /api/parameters                                      policymaker
GET    /api/parameters/{component}                          policymaker
GET    /api/parameters/{component}/{vhost}                  policymaker sees
GET    /api/parameters/{component}/{vhost}/{name}           policymaker sees
PUT    /api/parameters/{component}/{vhost}/{name}           policymaker keeps
DELETE /api/parameters/{component}/{vhost}/{name}           policymaker keeps
GET    /api/global-parameters                               policymaker
GET    /api/global-parameters/{name}                        policymaker
PUT    /api/global-parameters/{name}                        administrator
DELETE /api/global-parameters/{name}                        administrator
GET    /api/cluster-name                                    management
PUT    /api/cluster-name                                    administrator
GET    /api/definitions                                     administrator
POST   /api/definitions                                     administrator
PUT    /api/definitions                                     administrator
GET    /api/definitions/{vhost}                             policymaker sees
POST   /api/definitions/{vhost}                             policymaker keeps
PUT    /api/definitions/{vhost}                             policymaker keeps

GET    /api/users                                           administrator
GET    /api/users/without-permissions                       administrator
POST   /api/users/bulk-delete                               administrator
GET    /api/users/{user}                                    administrator
PUT    /api/users/{user}                                    administrator
DELETE /api/users/{user}                                    administrator
GET    /api/users/{user}/permissions                        administrator
GET    /api/users/{user}/topic-permissions                  administrator
GET    /api/users/{user}/access-keys                        administrator
POST   /api/users/{user}/access-keys                        administrator
DELETE /api/users/{user}/access-keys/{id}                   administrator
GET    /api/user-limits                                     administrator
GET    /api/user-limits/{user}                              administrator
PUT    /api/user-limits/{user}/{name}                       administrator
DELETE /api/user-limits/{user}/{name}                       administrator
GET    /api/vhosts                                          management
GET    /api/vhosts/{vhost}                                  management  sees
PUT    /api/vhosts/{vhost}                                  administrator
DELETE /api/vhosts/{vhost}                                  administrator
GET    /api/vhosts/{vhost}/permissions                      administrator
GET    /api/vhosts/{vhost}/topic-permissions                administrator
GET    /api/vhost-limits                                    management
GET    /api/vhost-limits/{vhost}                            management  sees
PUT    /api/vhost-limits/{vhost}/{name}                     administrator
DELETE /api/vhost-limits/{vhost}/{name}                     administrator
GET    /api/permissions                                     administrator
GET    /api/permissions/{vhost}/{user}                      administrator
PUT    /api/permissions/{vhost}/{user}                      administrator
DELETE /api/permissions/{vhost}/{user}                      administrator
GET    /api/topic-permissions                               administrator
GET    /api/topic-permissions/{vhost}/{user}                administrator
PUT    /api/topic-permissions/{vhost}/{user}                administrator
DELETE /api/topic-permissions/{vhost}/{user}                administrator
DELETE /api/topic-permissions/{vhost}/{user}/{exchange}     administrator

GET    /api/etl/jobs                                        management
GET    /api/etl/jobs/{name}                                 management
PUT    /api/etl/jobs/{name}                                 management
DELETE /api/etl/jobs/{name}                                 management

GET    /api/cluster                                         monitoring
GET    /api/cluster/queues                                  monitoring
PUT    /api/cluster/nodes/{name}                            administrator
DELETE /api/cluster/nodes/{name}                            administrator
PUT    /api/cluster/nodes/{name}/drain                      administrator
DELETE /api/cluster/nodes/{name}/drain                      administrator
POST   /api/cluster/transfer                                administrator
POST   /api/cluster/rebalance                               administrator
POST   /api/rebalance/queues                                administrator

GET    /api/admin/topics                                    anyone      enters
POST   /api/admin/topics                                    anyone      enters  configure:topic
GET    /api/admin/topics/{topic}                            anyone      enters  read:stream
DELETE /api/admin/topics/{topic}                            anyone      enters  configure:stream
POST   /api/topics/{topic}/produce                          anyone      enters  write:stream
GET    /api/topics/{topic}/consume                          anyone      enters  read:stream read:group
DELETE /api/topics/{topic}/consume                          anyone      enters  read:stream read:group
POST   /api/topics/{topic}/commit                           anyone      enters  read:stream read:group
POST   /api/topics/{topic}/seek                             anyone      enters  read:stream read:group
GET    /api/topics/{topic}/lag                              anyone      enters  read:stream read:group

POST   /                                                    anyone
POST   /sqs/{vhost}                                         anyone      enters
POST   /000000000000/{name}                                 anyone
GET    /000000000000/{name}                                 anyone
POST   /sqs/{vhost}/000000000000/{name}                     anyone      enters
GET    /sqs/{vhost}/000000000000/{name}                     anyone      enters
POST   /queue/{name}                                        anyone      enters
"""

# What an operation of SQS needs on the queue `q`; sending is publishing to the default exchange.
SQS_NEEDS = {
    "AddPermission": "",  # is refused, whoever asks
    "RemovePermission": "",
    "CancelMessageMoveTask": "read:q",
    "ChangeMessageVisibility": "read:q",
    "ChangeMessageVisibilityBatch": "read:q",
    "CreateQueue": "configure:q",
    "DeleteMessage": "read:q",
    "DeleteMessageBatch": "read:q",
    "DeleteQueue": "configure:q",
    "GetQueueAttributes": "",
    "GetQueueUrl": "",
    "ListDeadLetterSourceQueues": "",
    "ListMessageMoveTasks": "",
    "ListQueueTags": "",
    "ListQueues": "",
    "PurgeQueue": "read:q",
    "ReceiveMessage": "read:q",
    "SendMessage": "write:amq.default",
    "SendMessageBatch": "write:amq.default",
    "SetQueueAttributes": "configure:q",
    "StartMessageMoveTask": "read:q write:amq.default",
    "TagQueue": "configure:q",
    "UntagQueue": "configure:q",
}
