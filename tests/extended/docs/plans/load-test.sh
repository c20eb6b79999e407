#: place bare
#: needs rabbitmq
#: replace localhost:61613 => {rabbitmq}
#: replace --messages 2000 => --messages 200 --seconds 1
#: run sh 1
sam-publish load-test --broker stomp://{rabbitmq} --producers 1,5 --consumers 1,10 --sizes 0,1k \
    --messages 200 --seconds 1 --out second
sam-publish load-test --compare first second --out comparison
test -s first/report.html -a -s comparison/report.html
