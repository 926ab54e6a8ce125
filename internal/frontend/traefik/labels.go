package traefik

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"fairlead/internal/frontend/traefik/tree"
	"fairlead/internal/model/gateway"
	"fairlead/internal/similar"
)

// settings are the labels about the container itself.
type settings struct {
	Enable *bool
	Docker struct {
		Network                  *string
		LBSwarm, AllowNonRunning bool
	}
	Swarm struct {
		Network *string
		LBSwarm bool
	}
}

// AllowsNonRunning reports whether the labels ask for the routers of a container also while it does
// not run. Requests then get 503 instead of 404.
func AllowsNonRunning(labels map[string]string) bool {
	for key, text := range labels {
		if strings.EqualFold(key, "traefik.docker.allowNonRunning") {
			on, err := strconv.ParseBool(text)
			return on && err == nil
		}
	}
	return false
}

// network is the name that the labels give, or "".
func (s *settings) network() string {
	for _, name := range []*string{s.Docker.Network, s.Swarm.Network} {
		if name != nil {
			return *name
		}
	}
	return ""
}

// decodeSettings decodes the settings. A value of traefik.enable that cannot be parsed
// disables the container, as in Traefik.
func (r *reporter) decodeSettings(root *tree.Node) (s settings) {
	for _, name := range []string{"enable", "docker", "swarm"} {
		n := root.Child(name)
		if n == nil {
			continue
		}
		found := tree.Decode(&tree.Node{Children: []*tree.Node{n}}, root.Name, &s)
		if !r.mistakes("", found) && name == "enable" {
			s.Enable = new(bool)
		}
	}
	return s
}

// labelTree returns the tree of the labels below "traefik", without those that labels
// cannot set. It reports what is left out.
func (r *reporter) labelTree(labels map[string]string) *tree.Node {
	var pairs []tree.Pair
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		root, rest, _ := strings.Cut(key, ".")
		switch {
		case !strings.EqualFold(root, "traefik"):
		case root != "traefik":
			r.fail("", "label %s is ignored: write %q in lower case", key, "traefik")
		case rest == "":
			r.fail("", "label %s is ignored: it has no name after the dot", key)
		default:
			pairs = append(pairs, tree.Pair{Key: key, Value: labels[key]})
		}
	}
	labelled, mistakes := tree.FromPairs(pairs)
	r.mistakes("", mistakes)
	root := labelled.Child("traefik")
	if root == nil {
		return &tree.Node{Name: "traefik"}
	}
	r.duplicates(root, root.Name)
	root.Children = slices.DeleteFunc(root.Children, r.foreign)
	r.removeFileOnly(root, root.Name, fileOnly)
	return root
}

// duplicates reports keys that are given twice, with names that differ in case only.
func (r *reporter) duplicates(n *tree.Node, key string) {
	if len(n.Values) > 1 {
		r.warn("", "label %s is given %d times, in different cases: the last one is in effect; leave the others out",
			key, len(n.Values))
		n.Values = n.Values[len(n.Values)-1:]
	}
	for _, child := range n.Children {
		r.duplicates(child, tree.Join(key, child.Name))
	}
}

// versionOne are the names after "traefik" in labels of Traefik v1.
var versionOne = []string{"backend", "frontend", "port", "protocol", "weight", "domain"}

// foreign reports whether Traefik ignores a label. It warns of those that are probably
// meant to have an effect. Other names may be in use, such as for constraints.
func (r *reporter) foreign(n *tree.Node) bool {
	known := []string{"docker", "enable", "http", "swarm", "tcp", "tls", "udp"}
	name := strings.ToLower(n.Name)
	near, _ := similar.Nearest(name, known)
	switch {
	case slices.Contains(known, name):
		return false
	case slices.Contains(versionOne, name):
		r.warn("", "label traefik.%s is ignored: it is one of Traefik v1; write traefik.http.routers.NAME.rule and "+
			"traefik.http.services.NAME.loadbalancer.server.port", n.Name)
	case name == "network":
		r.warn("", "label traefik.%s is ignored: write traefik.docker.network", n.Name)
	case near != "":
		r.warn("", "label traefik.%s is ignored: %s", n.Name, tree.Unknown(n.Name, known))
	}
	return true
}

// fileOnly are the keys that Traefik's labels do not have, below the root. "*" stands
// for one name.
var fileOnly = []string{
	"http.serverstransports", "tcp.serverstransports", "tls.certificates", "tls.options",
	"tls.stores.default.defaultcertificate", "http.services.*.weighted", "http.services.*.mirroring",
	"http.services.*.failover", "http.services.*.highestrandomweight", "tcp.services.*.weighted",
	"udp.services.*.weighted",
	"http.services.*.loadbalancer.server.fenced", "tcp.services.*.loadbalancer.server.address",
	"udp.services.*.loadbalancer.server.address",
}

// removeFileOnly removes the keys from the tree and reports them.
func (r *reporter) removeFileOnly(n *tree.Node, key string, keys []string) {
	n.Children = slices.DeleteFunc(n.Children, func(child *tree.Node) bool {
		at := tree.Join(key, child.Name)
		var below []string
		for _, k := range keys {
			first, rest, more := strings.Cut(k, ".")
			if first != "*" && !strings.EqualFold(first, child.Name) {
				continue
			}
			if !more {
				r.fail("", "label %s is ignored: there is no such label; write it to a file of the file provider, "+
					"and refer to it with NAME@file", at)
				return true
			}
			below = append(below, rest)
		}
		if len(below) > 0 {
			r.removeFileOnly(child, at, below)
		}
		return false
	})
}

// decodeLabels decodes what the labels configure, without what they leave to defaults.
// Labels have one TLS store, "default", and a service that they describe is a load
// balancer.
func (r *reporter) decodeLabels(root *tree.Node) gateway.Config {
	config := &tree.Node{Name: root.Name}
	for _, n := range root.Children {
		switch strings.ToLower(n.Name) {
		case "enable", "docker", "swarm":
		default:
			config.Children = append(config.Children, n)
		}
	}
	if services := root.Child("http").Child("services"); services != nil {
		for _, n := range services.Children {
			if len(n.Children) == 1 && n.Child("middlewares") != nil {
				n.Children = append(n.Children, &tree.Node{Name: "loadbalancer"})
			}
		}
	}
	c := r.decodeConfig(config, root.Name)
	for name := range c.TLS.Stores {
		if name != "default" {
			r.fail(r.object(tlsStore, name), "labels configure the store %q only", "default")
			delete(c.TLS.Stores, name)
		}
	}
	return c
}
