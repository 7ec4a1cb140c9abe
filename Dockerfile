# One image for all of Airflow's services and for Spark's: Airflow, Java 17, our locked requirements, and the project.
# On Kubernetes, drivers and executors run deploy/kubernetes/entrypoint.sh in it; Airflow's pods, Airflow's entrypoint.
# The versions are those of pyproject.toml; tests/unit/test_compose.py compares them.
FROM eclipse-temurin:17-jre AS java

FROM apache/airflow:3.3.2-python3.11

# Copied instead of installed, so that the Java version does not depend on the Debian release of the Airflow image.
COPY --from=java /opt/java/openjdk /opt/java/openjdk
ENV JAVA_HOME=/opt/java/openjdk PATH="${PATH}:/opt/java/openjdk/bin"

# Made here so that named volumes mounted on them belong to the airflow user.
USER root
RUN install -d -o airflow -g root /opt/statestore /opt/applications /opt/airflow/auth \
    /var/lib/statestore/state /var/lib/statestore/archive /var/lib/statestore/reports /var/lib/statestore/data-docs
USER airflow

# The lock is closed: --no-deps keeps out pyspark-client, which would break pyspark (see requirements/README.md).
# The image's own packages stay, among them the PostgreSQL drivers, which our lock does not have.
COPY --chown=airflow:root requirements/demo.txt /opt/statestore/requirements/demo.txt
RUN pip install --no-cache-dir --no-deps --require-hashes -r /opt/statestore/requirements/demo.txt

COPY --chown=airflow:root . /opt/statestore
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable /opt/statestore

# PYTHONPATH: processors of your own applications, mounted by docker-compose.yml.
ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/statestore/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/statestore/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    PYTHONPATH=/opt/applications
