#!/bin/bash
# Starts a process of Flink with FLINK_PROPERTIES. Flink's own scripts work out sizes; here they are
# said.
set -eu
mkdir -p /tmp/flink/conf
cat > /tmp/flink/conf/config.yaml <<PROPERTIES
taskmanager.cpu.cores: 1.0
taskmanager.memory.framework.heap.size: 128m
taskmanager.memory.task.heap.size: 448m
taskmanager.memory.managed.size: 128m
taskmanager.memory.network.min: 64m
taskmanager.memory.network.max: 64m
taskmanager.memory.framework.off-heap.size: 64m
taskmanager.memory.task.off-heap.size: 0m
taskmanager.memory.jvm-metaspace.size: 256m
taskmanager.memory.jvm-overhead.min: 64m
taskmanager.memory.jvm-overhead.max: 64m
classloader.resolve-order: parent-first
$FLINK_PROPERTIES
PROPERTIES
runtime=org.apache.flink.runtime
case "$1" in
  jobmanager) main=($runtime.entrypoint.StandaloneSessionClusterEntrypoint --executionMode cluster) ;;
  taskmanager) main=($runtime.taskexecutor.TaskManagerRunner) ;;
esac
opened=()
for part in lang lang.invoke lang.reflect io net nio text time util util.concurrent \
  util.concurrent.atomic util.concurrent.locks; do
  opened+=("--add-opens=java.base/java.$part=ALL-UNNAMED")
done
exec java -Xmx640m -XX:+UseSerialGC "${opened[@]}" -cp /opt/job-server.jar \
  "${main[@]}" --configDir /tmp/flink/conf
