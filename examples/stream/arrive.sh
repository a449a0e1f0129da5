#!/bin/sh
# Lets files of made-up visits arrive in a folder, one every five seconds:
#   arrive.sh FOLDER NUMBER
# Each is written beside the folder and moved into it, so that no reader finds half a file.
set -eu
for number in $(seq "$2"); do
  now=$(date +%s)
  awk -v now="$now" -v seed="$now" 'BEGIN {
    srand(seed)
    print "t,person_id,age,sex"
    for (n = 0; n < 500; n++)
      printf "%d,%d,%d,%s\n", now, 100000 * rand(), 17 + 73 * rand(), rand() < 0.6 ? "Female" : "Male"
  }' > "$1.arriving"
  mv "$1.arriving" "$1/$now.csv"
  echo "$1/$now.csv: 500 visits"
  [ "$number" = "$2" ] || sleep 5
done
