package cluster_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"fairlead/test/engines"
)

// join makes the hosts one cluster.
func join(l *lan, hosts []*dockerHost) {
	l.Helper()
	hosts[0].fairlead("cluster init --node-name host1 --etcd " + l.etcd.Members[0].Endpoint())
	token := hosts[0].fairlead(fmt.Sprint("cluster token create --uses ", len(hosts)))
	for i, h := range hosts[1:] {
		h.fairlead(fmt.Sprintf("cluster join %s --node-name host%d", token, i+2))
	}
}

const ofCluster = "--ipam-driver fairlead --ipam-opt cluster=shop "

// TestDocker connects containers of several hosts with a network of the cluster.
func TestDocker(t *testing.T) {
	l := newEmptyLAN(t, 1)
	hosts := l.dockerHosts(programs(t), "", engines.New(t))
	one, two := hosts[0], hosts[1]
	join(l, hosts)
	one.fails("--subnet", "network create -d fairlead "+ofCluster+"shop")
	one.docker("network create -d fairlead " + ofCluster + "--subnet 10.9.0.0/16 shop")
	two.fails("has the subnet 10.9.0.0/16", "network create -d fairlead "+ofCluster+"--subnet 10.8.0.0/16 shop")
	two.fails("add --ipam-driver", "network create -d fairlead -o cluster=shop --subnet 10.9.0.0/16 shop")
	two.fails("omit --ip-range", "network create -d fairlead "+ofCluster+"--subnet 10.9.0.0/16 --ip-range 10.9.1.0/24 shop")
	two.fails("omit --gateway", "network create -d fairlead "+ofCluster+"--subnet 10.9.0.0/16 --gateway 10.9.255.254 shop")
	two.fails("omit --ipv6", "network create -d fairlead --ipv6 "+ofCluster+"shop")
	two.fails("want cluster=NAME", "network create -d fairlead --ipam-driver fairlead --ipam-opt clutser=shop shop")
	two.fails("fairlead network create --cluster", "network create -d fairlead "+ofCluster+"-o mtu=1400 shop")
	two.docker("network create -d fairlead " + ofCluster + "-o cluster=shop -o driver=vxlan store")
	two.fails("of another network", "network create -d fairlead "+ofCluster+"second")
	l.crossHosts(one, two)
	l.narrows(one, two)
	l.withoutEtcd(one, two)
	l.removed(one, two)
}

// dns returns the option for the network's DNS server on the host.
func (h *dockerHost) dns() string {
	h.Helper()
	return "--dns " + h.sh(h.dir+"/fairlead network ls | awk '$1 == \"shop\" { print $4 }'") + " "
}

// crossHosts tests addresses and names of containers on two hosts.
func (l *lan) crossHosts(one, two *dockerHost) {
	serve := " program serve tcp:80"
	one.docker("run -d --name web --network shop --network-alias api -p 8080:80" + serve)
	two.docker("run -d --name db.main --network store --network-alias data " + two.dns() + serve)
	one.docker("run -d --name client --network shop " + one.dns() + serve)
	for _, name := range []string{"web", "api", "web.shop", "API"} {
		l.asks(two, "db.main", name)
	}
	for _, name := range []string{"db.main", "data", "web"} {
		l.asks(one, "client", name)
	}
	if out := one.docker("exec client /program load tcp absent.shop:80 1"); !strings.Contains(out, "no such host") {
		l.Errorf("a name that no container has: %s", out)
	}
	one.docker("rename web shop")
	l.asks(two, "db.main", "shop")
	one.docker("rename shop web")
	address := func(h *dockerHost, name string) string {
		return h.docker("inspect -f {{range.NetworkSettings.Networks}}{{.IPAddress}}{{end}} " + name)
	}
	used := map[string]bool{address(one, "web"): true, address(two, "db.main"): true, address(one, "client"): true}
	if len(used) != 3 {
		l.Errorf("three containers have the addresses %v", used)
	}
	two.fails("on node host1 has it: detach that one",
		"run --rm --network store --ip "+address(one, "web")+" program exists /")
	two.until("", two.dir+"/program ask tcp 192.0.2.1:8080")
	one.docker("run -d --name moving --network shop" + serve)
	at := address(one, "moving")
	one.docker("rm -f moving")
	two.docker("run -d --name moving --network store --ip " + at + serve)
	one.docker("exec client /program ask tcp " + at + ":80")
	two.docker("exec db.main /program ask tcp " + at + ":80")
	two.docker("rm -f moving")
	one.docker("run -d --name moving --network shop --ip " + at + serve)
	two.docker("exec db.main /program ask tcp " + at + ":80")
	one.docker("rm -f moving")
}

// asks waits until a container gets an answer from another one by its name: a host has the names of the others'
// containers some time after they have started or were renamed.
func (l *lan) asks(h *dockerHost, from, name string) {
	l.Helper()
	l.until(from+" gets an answer from "+name, func() bool {
		_, err := h.Run(l.Context(), "exec", from, "/program", "ask", "tcp", name+":80")
		return err == nil
	})
}

// narrows lowers the MTU of one host's link. The links of running containers on both hosts must get the MTU
// that fits it.
func (l *lan) narrows(one, two *dockerHost) {
	one.sh("ip link set eth0 mtu 1400")
	for h, container := range map[*dockerHost]string{one: "client", two: "db.main"} {
		h.until(" mtu 1350 ", "nsenter --net=$(docker inspect -f {{.NetworkSettings.SandboxKey}} "+container+
			") ip -o link show eth0")
	}
	two.docker("exec db.main /program ask tcp web:80")
}

// withoutEtcd starts containers while etcd is away, after restarts of both daemons in both orders.
func (l *lan) withoutEtcd(one, two *dockerHost) {
	two.end("TERM")
	l.etcd.Members[0].Kill()
	two.start()
	for i, order := range []func(){
		func() { two.kill(); two.start(); l.ended(two); l.began(two) },
		func() { l.ended(two); two.kill(); two.start(); l.began(two) },
		func() { // Docker starts first, and waits for the daemon
			l.ended(two) // with a daemon that answers: Docker waits for it for 30 s
			two.kill()
			began := make(chan error)
			go func() { began <- two.Restart(l.Context()) }()
			two.start()
			if err := <-began; err != nil {
				l.Fatal(err)
			}
		},
	} {
		order()
		name := fmt.Sprint("late", i)
		two.docker("start db.main")
		two.docker("exec db.main /program ask tcp web:80")
		two.docker("run -d --name " + name + " --network store program serve tcp:80")
		at := two.docker("inspect -f {{range.NetworkSettings.Networks}}{{.IPAddress}}{{end}} " + name)
		one.docker("exec client /program ask tcp " + at + ":80")
	}
	l.etcd.Members[0].Start()
	l.asks(one, "client", "late2")
}

func (l *lan) ended(h *dockerHost) {
	l.Helper()
	if err := h.Signal(syscall.SIGTERM); err != nil {
		l.Fatal(err)
	}
}

func (l *lan) began(h *dockerHost) {
	l.Helper()
	if err := h.Restart(l.Context()); err != nil {
		l.Fatal(err)
	}
}

// removed removes the Docker networks, and then the network of the cluster.
func (l *lan) removed(one, two *dockerHost) {
	two.docker("rm -f db.main late0 late1 late2")
	two.docker("network rm store")
	two.until("shop", two.dir+"/fairlead network ls")
	one.docker("exec client /program ask tcp web:80")
	two.docker("network create -d fairlead " + ofCluster + "shop")
	two.docker("run -d --name again --network shop " + two.dns() + "program serve tcp:80")
	two.docker("exec again /program ask tcp web:80")
	two.docker("rm -f again")
	one.fairlead("network rm shop --cluster")
	two.until("0", two.dir+"/fairlead network ls | grep -c shop")
	two.fails("does not have network", "run --rm --network shop program exists /")
	two.docker("network rm shop")
	one.docker("rm -f web client")
	one.docker("network rm shop")
}
