#: place bare
#: needs rabbitmq
#: replace localhost:61613 => {rabbitmq}
#: replace --messages 2000 => --messages 200 --seconds 1
#: run sh 1 2
test -s first/report.html -a -s comparison/report.html
