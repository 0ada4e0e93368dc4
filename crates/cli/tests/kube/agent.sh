# Functions that run an agent on the node and look at it, after runtime.sh.

start_agent() { # NRI
    cat >/run/agent.toml <<END
observer = "proc"
listen = "off"
interval = "250ms"
[kubernetes]
nri = "$1"
caps = { shop = 500 }
END
    run_agent /run/agent.log --wait --config /run/agent.toml
}
stop_agent() {
    kill $agent
    wait $agent
    say "agent ended with $?"
}
# True if the agent knows a pod's cgroup by its UID, with this source of its weight if one is given.
known() { # UID [SOURCE]
    $justitia status --json | tr -d ' \n' | grep -q "pod$1\",\"id\":[^{}]*,\"weight\":[0-9]*,\"weight_source\":\"$2"
}
unknown() { ! known "$1"; }
look() { $justitia status --json | tell "$1" >>/run/all; } # NAME
