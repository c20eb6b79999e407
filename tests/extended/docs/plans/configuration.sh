#: place bare
#: replace /etc/sam => {here}
printf '[publisher]\nbrokers = ["spool://{here}/spool"]\n' > sam.toml
#: run sh 1
shows "{here}/conf.d/20-site.toml:2"
shows "{here}/conf.d/20-site.toml:3"
printf '[database]\nurl = "sqlite:///sam.db"\n[consumer]\nname = "a"\nbrokers = ["spool://{here}/spool"]\n' >> sam.toml
#: run sh 2
for program in sam-consume sam-db sam-report; do $program config --origin; done
