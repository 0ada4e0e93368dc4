# Pods that write and read at steady rates beside an agent and Debian's Prometheus, after cri.sh.

steady() { # POD PAUSE [ATTEMPT]
    container main 'image { image: "'$image'" } command: "/bin/sh" command: "/counts/steady" command: "'"$1"'"
        command: "'"$2"'" mounts { container_path: "/data" host_path: "/data/files" }
        mounts { container_path: "/counts" host_path: "/run/counts" }' "$3"
}
ask() { # QUERY
    curl --silent --get --data-urlencode "query=$1" http://127.0.0.1:9090/api/v1/query
    echo
}
knows() { ask "$1" | grep -q '"value"'; } # QUERY

mkdir -p /data/files /run/counts
# Writes and reads a mebibyte in a loop. Each line has the time since boot and the number of rounds.
cat >/run/counts/steady <<'END'
rounds=0
while dd if=/dev/zero of=/data/$1 bs=64k count=16 conv=notrunc && dd if=/data/$1 of=/dev/null bs=64k; do
    rounds=$((rounds + 1))
    read up idle </proc/uptime
    echo $up $rounds >>/counts/$1
    sleep $2
done
END
cat >/run/prometheus.yml <<END
global: { scrape_interval: 30s }
scrape_configs: [{ job_name: justitia, static_configs: [{ targets: ["127.0.0.1:9619"] }] }]
END
(
    echo "$BASHPID" >$cgroups/agent/cgroup.procs
    exec $justitia run --wait
) >/run/agent.log 2>&1 </dev/null &
patiently $justitia status
pod shop web 11111111-aaaa-bbbb-cccc-000000000002 /burstable
steady web 0.3
pod shop db 11111111-aaaa-bbbb-cccc-000000000001 /burstable
steady db 1
prometheus --config.file=/run/prometheus.yml --storage.tsdb.path=/run/prometheus \
    --web.listen-address=127.0.0.1:9090 >/run/prometheus.log 2>&1 </dev/null &
patiently knows 'justitia_group_written_bytes_total{pod="db"} > 0'
say "Prometheus has a first sample"
# Ten scrapes lie within the five minutes of the queries.
sleep 330
{
    date +%s.%N
    cat /proc/uptime
} | tell times >>/run/all
for what in written read; do
    ask "increase(justitia_group_${what}_bytes_total{container=\"main\"}[5m])" | tell $what >>/run/all
done
# Wait until both pods have counted past the end of the queries.
sleep 5
for pod in db web; do tell "count.$pod" </run/counts/$pod >>/run/all; done
{
    curl --silent http://127.0.0.1:9619/api/status
    echo
} | tell page >>/run/all

# The container is restarted: it has another cgroup and the same names.
kill -KILL "$(cat "/run/containerd/io.containerd.runtime.v2.task/k8s.io/$container/init.pid")"
steady db 1 1
series='last_over_time(justitia_group_weight{pod="db",container="main"}[10m])'
patiently knows "count($series) == 2"
ask "$series" | tell again >>/run/all
for log in agent prometheus; do tail -n 40 /run/$log.log | tell $log.log >>/run/all; done
report </run/all
