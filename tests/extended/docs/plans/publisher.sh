#: place bare
#: needs rabbitmq tls
export SAM_PUBLISHER_BROKERS=stomp://{rabbitmq} SAM_PUBLISHER_DESTINATION=/topic/docs.{uuid}
#: run sh 1 2 3
shows "LOAD OK"

# Results of Nagios
#: write cfg 1 commands.cfg
export SERVICEDESC=org.example.Disk SERVICESTATE=CRITICAL HOSTNAME=se01 _SERVICEFLAVOUR=SE
export LASTSERVICECHECK=1795176000 SERVICEOUTPUT='-1 % left' LONGSERVICEOUTPUT='first\nsecond'
export SERVICEPERFDATA='free=-1%;5;2' HOSTSTATE=UNREACHABLE LASTHOSTCHECK=1795176000
export HOSTOUTPUT=- LONGHOSTOUTPUT=- HOSTPERFDATA=
python - > nagios.sh <<'END'
import re
text = open("commands.cfg").read().replace("\\\n", " ")
for line in re.findall(r"command_line +(.*)", text):
    print("SAM_PUBLISHER_BROKERS=spool://$PWD/nagios", re.sub(r"'?\$(\w+)\$'?", r'"$\1"', line))
END
. ./nagios.sh
PYTHONPATH={root} python - <<'END'
from sam_pipeline.schema.spool.queue import DirectoryQueue
queue = DirectoryQueue("nagios")
service, host = (queue.read(name).body.decode() for name in queue.names())
assert "metricStatus: CRITICAL\n" in service and "summaryData: -1 % left\n" in service, service
assert "performanceData: free=-1%;5;2\n" in service, service
assert service.endswith("detailsData: first\nsecond\nEOT\n"), service
assert "metricStatus: UNKNOWN\n" in host, host
END

# Configurations
cp ca.pem rabbit-ca.pem
#: valid sam-publish toml 1 2 3 4
printf '[publisher]\n[[publisher.copy]]\nname = "region"\nbrokers = ["stomp://{rabbitmq}"]\n' > sam.toml
sam-publish result --metric m --status OK --host ce01.example.org --flavour CE
sam-publish spool status
sam-publish spool list --copy region
sam-publish spool drain
sam-publish check --connect
rm sam.toml
#: run sh 4 5 6
