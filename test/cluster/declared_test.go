package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// declaration returns a file of the set "shop" with services at these ports.
func (s *site) declaration(ports ...int) string {
	s.Helper()
	text := "name: shop\nservices:\n"
	for _, port := range ports {
		text += fmt.Sprintf("  web%d: {cluster: true, address: %s, port: %d, reals: network=shop}\n", port, vip, port)
	}
	return s.written(text)
}

func (s *site) written(text string) string {
	s.Helper()
	path := filepath.Join(s.TempDir(), "fairlead.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// TestDeclaredServices declares a service of the cluster in a file, and applies it on several hosts, also
// without etcd.
func TestDeclaredServices(t *testing.T) {
	s := newSite(t, "vxlan")
	one, two, three := s.hosts[0], s.hosts[1], s.hosts[2]
	file := s.declaration(8080)
	said, err := one.Try("plan", "-f", file)
	if err == nil || !strings.Contains(said, "cluster service web8080: created") {
		t.Errorf("plan: %v\n%s", err, said)
	}
	one.Run("apply", "-f", file)
	for _, h := range s.hosts {
		s.via(h)
		s.answered(8080, s.everyone(one, two, three)...)
	}
	for _, h := range s.hosts {
		h.Run("plan", "-f", file) // it fails if there is something to do
		h.Run("apply", "-f", file)
	}
	s.refused(two, "the files of set shop declare it", "service", "rm", "web8080", "--cluster")
	s.refused(two, "need a set with a name", "apply", "-f",
		s.written("services: {web: {cluster: true, address: "+vip+", port: 80, reals: network=shop}}"))

	s.etcd.Members[0].Kill()
	s.refused(two, "apply again", "apply", "-f", s.written("name: shop"))
	two.Run("apply", "-f", file)
	s.answered(8080, s.everyone(one, two, three)...)
	s.etcd.Members[0].Start()
	s.until("etcd is back", func() bool { return two.status().Etcd.Connected })

	const service = "name: shop\nservices: {web8080: {%s address: %s, port: 8080, reals: network=shop}}"
	two.Run("apply", "-f", s.written(fmt.Sprintf(service, "cluster: true, ingress: host1,", vip)))
	s.via(three)
	s.until("host3 accepts no traffic", func() bool { _, _, err := s.opens(8080); return err != nil })
	s.via(one)
	s.answered(8080, s.everyone(one, two, three)...)
	three.Run("destroy", "-f", file)
	for _, h := range s.hosts {
		s.until(h.name+" has no service", func() bool { return !strings.Contains(h.Run("service", "ls"), "web8080") })
	}

	one.Run("apply", "-f", s.written(fmt.Sprintf(service, "", vip)))
	one.Run("apply", "-f", file) // it belongs to the cluster now
	for _, h := range s.hosts {
		s.via(h)
		s.answered(8080, s.everyone(one, two, three)...)
	}
}
