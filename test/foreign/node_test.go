package foreign_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fairlead/internal/child"
	"fairlead/internal/cluster/member"
	"fairlead/test/daemons"
	"fairlead/test/etcd"
	"fairlead/test/place"
	"fairlead/test/shell"
)

// The addresses of the two nodes. The router has etcd.
const (
	hereAddress  = "198.51.100.2"
	otherAddress = "198.51.100.1"
)

// newNode returns a host that can join a cluster, which its router has created.
func newNode(t *testing.T) *host {
	t.Helper()
	h := newHost(t)
	h.fixNeighbours()
	servers := etcd.Start(t, []etcd.Spot{{Host: otherAddress, In: h.router.Do}})
	h.other = daemons.New(t, daemons.In(t.TempDir()), child.Place{Netns: h.router.File()})
	h.other.Run("cluster", "init", "--etcd", servers.Endpoints()[0], "--node-name", "other", "--address", otherAddress)
	h.token = strings.TrimSpace(h.other.Run("cluster", "token", "create"))
	return h
}

// fixNeighbours makes both ends of the wire know each other: rules for ARP and neighbours of others do not cut the
// node off.
func (h *host) fixNeighbours() {
	h.Helper()
	hardware := func(in place.Place) string {
		return strings.TrimSpace(shell.Run(h, in, "ip -o link show dev wire0 | sed 's/.*ether \\([^ ]*\\).*/\\1/'"))
	}
	here, other := hardware(h.ns.Do), hardware(h.router.Do)
	for _, one := range []struct {
		in             place.Place
		address, lladr string
	}{{h.ns.Do, otherAddress, other}, {h.router.Do, hereAddress, here}} {
		shell.Run(h, one.in, "ip neigh replace "+one.address+" lladdr "+one.lladr+" nud permanent dev wire0")
	}
}

// reachesOthers reports whether the host, if it is to be a node, reaches etcd. Its administrator lets the traffic
// of clusters pass: no rule of others comes first.
func (h *host) reachesOthers() bool {
	h.Helper()
	if h.other == nil {
		return true
	}
	h.letPass(etcd.ClientPort, member.Port)
	for _, undo := range []string{"true", "tc qdisc del dev wire0 clsact", "tc qdisc del dev wire0 ingress",
		"tc qdisc del dev wire0 root"} {
		if _, err := shell.Try(h.ns.Do, undo); err != nil {
			continue // there is none
		}
		conn, err := place.Dial(h.ns.Do, "tcp", fmt.Sprintf("%s:%d", otherAddress, etcd.ClientPort), 3*time.Second)
		if err == nil {
			return conn.Close() == nil
		}
	}
	return false
}

// letPass begins each chain of others with rules that accept TCP ports.
func (h *host) letPass(ports ...int) {
	h.Helper()
	var script strings.Builder
	table, chain := "", ""
	for line := range strings.Lines(shell.Run(h, h.ns.Do, "nft list chains")) {
		words := strings.Fields(line)
		switch {
		case len(words) > 3 && words[0] == "table":
			table = words[1] + " " + words[2]
		case len(words) > 2 && words[0] == "chain":
			chain = words[1]
		case len(words) < 4 || words[0] != "type" || strings.HasPrefix(table, "arp ") ||
			strings.HasPrefix(table, "ip6 ") || strings.HasPrefix(table, "inet fairlead"):
		default:
			for _, port := range ports {
				fmt.Fprintf(&script, "nft insert rule %[1]s %[2]s tcp sport %[3]d accept\n"+
					"nft insert rule %[1]s %[2]s tcp dport %[3]d accept\n", table, chain, port)
			}
		}
	}
	for _, port := range ports {
		fmt.Fprintf(&script, "iptables-legacy-save | while read -r first rest; do case $first in "+
			"\\**) table=${first#?};; :*) for side in --sport --dport; do iptables-legacy -w -t $table -I ${first#:} "+
			"-p tcp $side %d -j ACCEPT || true; done;; esac; done\n", port)
	}
	shell.Run(h, h.ns.Do, script.String()+"true")
}

// nodeCommands returns a life of Fairlead on a host that is a node of a cluster: all commands about clusters, and
// those that do something else there.
func nodeCommands() (all []command) {
	add := func(some ...command) { all = append(all, some...) }
	add(cli("cluster join TOKEN --node-name here --address " + hereAddress))
	add(looks("cluster status", "cluster token ls")...)
	add(command{name: "cluster token create and rm", do: (*host).removeToken},
		cli("network create net --cluster --driver vxlan --subnet 10.9.0.0/16"),
		applied("network ls", "net"),
		cli("attach net BOX --name web"),
		cli("publish web 8080:80 --via nat"),
		cli("service add site 192.0.2.80:80 --cluster --real network=net:80"),
		applied("service show site", "10.9."),
		cli("cluster address add 198.51.100.7/24 --hold 3s"))
	add(looks("ls", "network ls", "service ls", "service show site", "ports", "stats", "events", "get",
		"cluster address ls")...)
	add(doctor, restart, kill,
		applied("cluster bgp ls", ""), // a daemon is ready before it has read the records of its cluster
		cli("service set site --cluster --scheduler rr"),
		cli("cluster bgp add "+otherAddress+" --as 64512 --local-as 64513"), look("cluster bgp ls"),
		cli("cluster bgp rm "+otherAddress),
		cli("cluster drain here"), cli("cluster drain here --undo"),
		cli("cluster etcd --etcd http://"+otherAddress+":2379"),
		cli("cluster readdress "+hereAddress), cli("cluster takeover --force"),
		cli("cluster address rm 198.51.100.7"),
		cli("service rm site --cluster"), cli("detach web"), cli("network rm net --cluster"),
		cli("cluster rm other --force"), cli("cluster leave"), stop)
	return all
}

// removeToken creates a token and removes it.
func (h *host) removeToken() {
	h.Helper()
	h.run("cluster token create")
	for line := range strings.Lines(h.run("cluster token ls")) {
		if id, _, _ := strings.Cut(line, " "); id != "ID" && id != "" {
			h.run("cluster token rm " + id)
		}
	}
}

// applied returns a command that reads, and waits until its output has the word: the host has applied a record of
// the cluster then.
func applied(line, word string) command {
	return command{name: line, reads: true, do: func(h *host) {
		h.Helper()
		for end := time.Now().Add(place.Timeout); ; {
			said, err := h.daemon.Try(h.words(line)...)
			if err == nil && strings.Contains(said, word) {
				return
			}
			if time.Now().After(end) {
				h.Fatalf("fairlead %s: %v, want %q in\n%s", line, err, word, said)
			}
		}
	}}
}
