package release_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fairlead/test/place"
)

// gateway has a TCP router to the sandbox shop.
const gateway = `fairlead apply -f - <<'EOF'
gateway:
  entryPoints:
    stream: {address: ":7006"}
  tcp:
    routers:
      stream: {rule: HostSNI("*"), entryPoints: [stream], service: shop}
    services:
      shop:
        loadBalancer:
          servers: [{address: "172.30.0.2:9006"}]
EOF`

// publishes are the commands that publish the ports of the sandbox shop: 7000 publishes 9000, and so on. Each path has
// a container port of its own, because eBPF programs and conntrack do not know of each other's connections.
var publishes = []string{
	"fairlead publish shop 7000:9000 7000:9000/udp --via nat",
	"fairlead publish shop 7001:9001 7001:9001/udp --via ebpf",
	"fairlead publish shop 7002:9002 --via proxy",
	"fairlead service add nft " + machineAddress + ":7003 --plane nft --real name=shop:9003",
	"fairlead service add ebpf " + machineAddress + ":7004 --plane ebpf --real name=shop:9004",
	gateway,
}

// served are the published ports by what serves them over TCP and UDP. UDP flows via proxy begin again at an upgrade
// (ADR 23), so they are not among them.
var served = map[string][]uint16{"tcp": {7000, 7001, 7002, 7003, 7004, 7006}, "udp": {7000, 7001}}

// TestPackage installs the package for Debian on a copy of this machine's system, upgrades, removes and purges it.
//
// FAIRLEAD_DEBIANS names releases of Debian, separated by commas, that debootstrap creates instead, and
// FAIRLEAD_UPGRADES the number of upgrades under load.
func TestPackage(t *testing.T) {
	upgrades, err := strconv.Atoi(cmp.Or(os.Getenv("FAIRLEAD_UPGRADES"), "2"))
	if err != nil {
		t.Fatalf("read FAIRLEAD_UPGRADES: %v", err)
	}
	if os.Getenv("FAIRLEAD_DEBIANS") == "" {
		lifecycle(t, "/", upgrades)
		return
	}
	for release := range strings.SplitSeq(os.Getenv("FAIRLEAD_DEBIANS"), ",") {
		t.Run(release, func(t *testing.T) { lifecycle(t, debian(t, release), upgrades) })
	}
}

// debian creates a release of Debian with systemd, and returns its directory.
func debian(t *testing.T, release string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	mirror := strings.Fields(run(t, "", "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages",
		"Origin: Debian", "Codename: bookworm"))
	if len(mirror) == 0 {
		t.Fatal("the apt sources have no mirror of Debian 12")
	}
	// The system ends with the test, so dpkg need not wait until its files are on the disk.
	dir := filepath.Join(root, "etc/dpkg/dpkg.cfg.d")
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "unsafe-io"), []byte("force-unsafe-io\n"), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	// In a mount namespace, its mounts end with it.
	run(t, "", "unshare", "--mount", "debootstrap", "--variant=minbase", "--include=systemd-sysv", release, root,
		mirror[0])
	return root
}

// lifecycle does with the package what an administrator does with it, in the system below a directory.
func lifecycle(t *testing.T, lower string, upgrades int) {
	dist, version := artefacts(t)
	deb := filepath.Join(dist, "fairlead_"+version+"-1_"+host+".deb")
	next := repacked(t, deb, version)
	m := boot(t, lower)
	m.sandbox("shop", 9000, 9001, 9002, 9003, 9004, 9006)
	before, files := place.Snapshot(t, m.host.Do), m.named()

	began := time.Now()
	m.install(deb)
	m.nothingStarted(before)
	m.configureFlags()
	m.run("systemctl enable --now fairlead.socket fairlead-docker.socket fairlead.service")
	m.run("fairlead network create web --subnet 172.30.0.0/24")
	m.run("fairlead attach web $(systemctl show --property=MainPID --value box-shop) --name shop")
	m.run(publishes[0])
	m.answers("tcp", 7000)
	t.Logf("from the installation to the first answer of a published port: %v", time.Since(began))
	m.run("test -S /run/docker/plugins/fairlead.sock && test -S /run/fairlead/metrics.sock")
	for _, command := range publishes[1:] {
		m.run(command)
	}

	m.upgradesUnderLoad(upgrades, next, deb)
	m.remove(before, files)
	m.comesBack(deb)
	m.purge(before, files)
}

// nothingStarted checks that the installation has started and enabled nothing, and left the network as it was.
func (m *machine) nothingStarted(before string) {
	m.Helper()
	for _, question := range []string{"is-active", "is-enabled"} {
		out, err := m.try("systemctl " + question + " fairlead.socket fairlead-docker.socket fairlead.service")
		if states := strings.Fields(out); err == nil || len(states) != 3 ||
			slices.ContainsFunc(states, func(s string) bool { return s != "inactive" && s != "disabled" }) {
			m.Errorf("systemctl %s after the installation: %s", question, out)
		}
	}
	place.Unchanged(m, m.host.Do, before)
}

// configureFlags changes the configuration file, which upgrades must keep.
func (m *machine) configureFlags() {
	m.run(`echo 'DAEMON_FLAGS="--metrics unix:/run/fairlead/metrics.sock"' >/etc/default/fairlead`)
}

// repacked returns a package of a later version with another binary of the same sources.
func repacked(t *testing.T, deb, version string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, dir, "sh", "-ec", `dpkg-deb -R "$0" root
sed -i "s/^Version: .*/Version: $1+next-1/" root/DEBIAN/control
echo >>root/usr/bin/fairlead
dpkg-deb -Zgzip -z1 -b root next.deb`, deb, version)
	return filepath.Join(dir, "next.deb")
}

// load returns a load from the client to a port, which the sandbox must answer.
func (m *machine) load(network string, port uint16) *load {
	return &load{network: network, addr: fmt.Sprintf("%s:%d", machineAddress, port), in: m.client.Do,
		want: fmt.Sprintf("shop:%d", port+2000)}
}

// answers checks that a published port answers the client.
func (m *machine) answers(network string, port uint16) {
	m.Helper()
	l := m.load(network, port)
	conn, err := place.Dial(l.in, network, l.addr, place.Timeout)
	if err == nil {
		defer conn.Close()
		err = l.ask(conn, "hello")
	}
	if err != nil {
		m.Fatalf("%s: %v", l, err)
	}
}

// upgradesUnderLoad installs the packages in turn while clients use every published port. None may lose a connection.
func (m *machine) upgradesUnderLoad(upgrades int, packages ...string) {
	m.Helper()
	var loads []*load
	for network, ports := range served {
		for _, port := range ports {
			loads = append(loads, m.load(network, port))
		}
	}
	ctx, stop := context.WithCancel(m.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	for _, l := range loads {
		l.start(ctx, &running)
	}
	for i := range upgrades {
		awaitExchanges(m.T, loads)
		daemon := m.process("fairlead.service")
		m.install(packages[i%len(packages)])
		if m.process("fairlead.service") == daemon {
			m.Error("the upgrade has not replaced the daemon")
		}
	}
	awaitExchanges(m.T, loads)
	stop()
	running.Wait()
	for _, l := range loads {
		if err := l.lost.Load(); err != nil {
			m.Error(*err)
		}
		m.Logf("%s: %d answers on one connection, %d connections, 0 lost in %d upgrades", l, l.answers.Load(), l.came.Load(),
			upgrades)
	}
	m.run("systemctl is-active fairlead.service && grep -q metrics.sock /etc/default/fairlead")
	program := m.run("readlink /proc/" + m.process("fairlead.service") + "/exe")
	if program != "/usr/bin/fairlead\n" {
		m.Errorf("the daemon runs %s", program)
	}
}

// remove removes the package. The configuration and the state stay, and nothing else.
func (m *machine) remove(before string, files []string) {
	m.Helper()
	m.run("dpkg --no-triggers -r fairlead")
	place.Unchanged(m, m.host.Do, before)
	if out, _ := m.try("ls -l /proc/[0-9]*/exe 2>/dev/null | grep /fairlead"); out != "" {
		m.Errorf("after the removal run:\n%s", out)
	}
	want := append(slices.Clone(files), "/etc/default/fairlead", "/var/lib/dpkg/info/fairlead.list",
		"/var/lib/dpkg/info/fairlead.postrm", "/var/lib/fairlead", "/var/lib/fairlead/fairlead.db",
		"/var/lib/fairlead/fairlead.db.copy")
	slices.Sort(want)
	if got := m.named(); !slices.Equal(got, want) {
		m.Errorf("after the removal there are %q, want %q", got, want)
	}
}

// comesBack installs the package again: the service starts with what was declared.
func (m *machine) comesBack(deb string) {
	m.Helper()
	m.install(deb)
	m.run("systemctl start fairlead.service")
	if out := m.run("fairlead network ls"); !strings.Contains(out, "172.30.0.0/24") {
		m.Errorf("a later installation has not restored the network:\n%s", out)
	}
}

// purge removes the package with its configuration and state.
func (m *machine) purge(before string, files []string) {
	m.Helper()
	m.run("dpkg --no-triggers -P fairlead")
	place.Unchanged(m, m.host.Do, before)
	if got := m.named(); !slices.Equal(got, files) {
		m.Errorf("after the purge there are %q, want %q", got, files)
	}
}
