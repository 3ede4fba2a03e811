#!/usr/bin/env perl
# An agent behind a command: a legal action at random, by the episode's seed.
use strict;
use warnings;
$| = 1;
my %state;    # of each slot's episode: a number that a linear congruence moves
while (my $line = <STDIN>) {
    my ($type) = $line =~ /"type":"(\w+)"/;
    my ($slot) = $line =~ /"slot":(\d+)/;
    if ($type eq "hello") { print qq({"type":"ready","serves":"many"}\n) }
    elsif ($type eq "reset") { ($state{$slot}) = $line =~ /"seed":(\d+)/ }
    elsif ($type eq "act") {
        my @legal = split /,/, ($line =~ /"legal":\[([\d,]*)\]/)[0];
        $state{$slot} = ($state{$slot} * 1103515245 + 12345) % 2147483648;
        print qq({"action":$legal[int($state{$slot} / 65536) % @legal]}\n);
    }
}
