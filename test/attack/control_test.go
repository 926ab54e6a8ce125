package attack_test

import (
	"testing"

	"fairlead/internal/model"
	"fairlead/internal/threat"
)

// TestProbersSeeEffects disables protections of Fairlead, and executes attacks that have no effect
// while they are enabled.
func TestProbersSeeEffects(t *testing.T) {
	w := newWorld(t)
	// With br_netfilter the host drops its own addresses from a bridge, too.
	w.sh(w.host.Do, "nft flush chain inet fairlead sources")
	victims := position(w.host.In(victim(model.DriverBridge)))
	for _, c := range []struct {
		attack threat.Attack
		in     position
		open   string
		flavor flavor
	}{
		{threat.AdvertiseHost, w.plain.Do,
			"sysctl -qw $(sysctl -Na net.ipv6.conf | grep -E 'conf[.]fl.*accept_ra$' | sed s/$/=1/)", flavor{}},
		{threat.AdvertiseContainer, victims, "sysctl -qw net.ipv6.conf.eth0.accept_ra=1", flavor{}},
		{threat.Redirect, victims, "sysctl -qw net.ipv4.conf.all.accept_redirects=1", flavor{v4: true}},
		{threat.SourceRoute, w.host.Do,
			"nft flush chain inet fairlead forward; sysctl -qw net.ipv4.conf.all.accept_source_route=1; for i in /proc/sys/net/ipv4/conf/*/accept_source_route; do echo 1 >$i; done", flavor{v4: true, proto: model.UDP}},
		{threat.Unpublished, w.host.Do, "nft flush chain inet fairlead forward", flavor{v4: true, proto: model.TCP}},
		{threat.Fragment, w.host.Do, "nft flush chain inet fairlead forward", flavor{v4: true, proto: model.UDP}},
	} {
		t.Run(string(c.attack), func(t *testing.T) {
			w.sh(c.in, c.open)
			cell := threat.Cell{Attack: c.attack, Attacker: threat.LANHost, Driver: model.DriverBridge}
			if got := probers[c.attack].attack(w, cell, c.flavor); got.err != nil || !got.effect {
				t.Errorf("the protection is disabled, but the attack has no effect: %s %v", got.because, got.err)
			}
		})
	}
}
