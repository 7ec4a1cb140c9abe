#!/usr/bin/env bash
# What a container of this image runs on Kubernetes.
#
#   job NAME [ARG...]     submit a job in client mode: its driver runs here. Exit code: the job's; if that is 0, its report's
#   executor              an executor, as Spark's variables describe it
#   driver ARG...         the driver of deploy mode cluster
#   COMMAND [ARG...]      anything else, such as statestore
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

case ${1:-} in
    job)
        name=$2
        report=$STATESTORE_REPORTS_DIR/$name/$POD_NAME.json
        shift 2
        shared=()
        if [[ -n ${SHARED_CLAIM:-} ]]; then
            volume=spark.kubernetes.executor.volumes.persistentVolumeClaim.shared
            shared=(--conf "$volume.options.claimName=$SHARED_CLAIM" --conf "$volume.mount.path=/var/lib/statestore/shared"
                --conf "spark.executorEnv.NUMBA_CACHE_DIR=$NUMBA_CACHE_DIR")
        fi
        # With the pod's name, Spark lets Kubernetes remove the executors if this pod is gone.
        spark-submit --name "statestore-$name" \
            --conf "spark.kubernetes.namespace=$POD_NAMESPACE" \
            --conf "spark.kubernetes.driver.pod.name=$POD_NAME" \
            --conf "spark.kubernetes.container.image=$EXECUTOR_IMAGE" \
            "${shared[@]}" \
            "$root/jobs/$name.py" --report "$report" "$@"
        exec statestore report "$report"
        ;;
    executor)
        : "${SPARK_HOME:=$(find_spark_home.py)}"
        export SPARK_HOME
        options=()
        while option=SPARK_JAVA_OPT_${#options[@]} && [[ -v $option ]]; do
            options+=("${!option}")
        done
        exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "${options[@]}" \
            "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
            -cp "${SPARK_CONF_DIR:-$SPARK_HOME/conf}:$SPARK_HOME/jars/*${SPARK_EXTRA_CLASSPATH:+:$SPARK_EXTRA_CLASSPATH}" \
            org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
            --driver-url "$SPARK_DRIVER_URL" \
            --executor-id "$SPARK_EXECUTOR_ID" \
            --cores "$SPARK_EXECUTOR_CORES" \
            --app-id "$SPARK_APPLICATION_ID" \
            --hostname "$SPARK_EXECUTOR_POD_IP" \
            --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
            --podName "$SPARK_EXECUTOR_POD_NAME"
        ;;
    driver)
        shift
        exec spark-submit --deploy-mode client \
            --conf "spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS" \
            --conf "spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS" \
            "$@"
        ;;
    *)
        exec "$@"
        ;;
esac
