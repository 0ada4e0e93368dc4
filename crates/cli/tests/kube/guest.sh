# Pods with weights beside an agent on the node, after cri.sh and agent.sh.

pod shop db 11111111-aaaa-bbbb-cccc-000000000001 "" justitia.io/weight=300 justitia.io/weight.db=700
db=$sandbox
container db
container sidecar
start_agent auto
patiently known 11111111-aaaa-bbbb-cccc-000000000001 pod_annotation
pod shop greedy 11111111-aaaa-bbbb-cccc-000000000002 /burstable justitia.io/weight=9000
container main
pod dev greedy 11111111-aaaa-bbbb-cccc-000000000003 /burstable justitia.io/weight=9000
container main
pod dev plain 11111111-aaaa-bbbb-cccc-000000000004 /besteffort
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000002 pod_cap
patiently known 11111111-aaaa-bbbb-cccc-000000000003 pod_cap
patiently known 11111111-aaaa-bbbb-cccc-000000000004 qos_class
look told
$justitia status 2>&1 | tell status.text >>/run/all
$justitia explain pod11111111-aaaa-bbbb-cccc-000000000002 2>&1 | tell explain.text >>/run/all
for spec in /run/containerd/io.containerd.runtime.v2.task/k8s.io/*/config.json; do
    tr -d '\n' <$spec | grep -o '"annotations":{[^}]*}'
done | tell specs >>/run/all

# The runtime is stopped: the agent goes on.
kill -STOP $containerd
look stopped
sleep 2
look stopped.later
kill -CONT $containerd
# The agent is stopped: the runtime goes on without it.
kill -STOP $agent
pod shop late 11111111-aaaa-bbbb-cccc-000000000005 /burstable justitia.io/weight=120
container main
kill -CONT $agent
patiently known 11111111-aaaa-bbbb-cccc-000000000005 pod_annotation
# The runtime is restarted: containers go on, the agent keeps its knowledge and learns of new pods.
kill -KILL $containerd
wait $containerd
sleep 1
look down
start_containerd
pod shop new 11111111-aaaa-bbbb-cccc-000000000006 /burstable justitia.io/weight=130
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000006 pod_annotation
look restarted
remove_pod $db
rmdir $cgroups/kubepods/pod11111111-aaaa-bbbb-cccc-000000000001
patiently unknown 11111111-aaaa-bbbb-cccc-000000000001
stop_agent

# Without NRI the runtime records names, and annotations only if it is configured to pass them.
start_agent off
patiently known 11111111-aaaa-bbbb-cccc-000000000006 qos_class
look recorded
$justitia weight shop/greedy/main --json 2>&1 | tell named >>/run/all
kill $containerd
wait $containerd
start_containerd '"justitia.io/*"'
pod shop passed 11111111-aaaa-bbbb-cccc-000000000007 /burstable justitia.io/weight=140
container main
patiently known 11111111-aaaa-bbbb-cccc-000000000007 pod_annotation
look passed
stop_agent
{ containerd --version; runc --version; uname -r; } 2>&1 | tell versions >>/run/all
tell agent.log </run/agent.log >>/run/all
tell containerd.log </run/containerd.log >>/run/all
report </run/all
