package traefik

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
)

// withChains returns a container whose middlewares are chains of others, or add a prefix.
func withChains(name string, chains, prefixes map[string]string) *Container {
	labels := map[string]string{"traefik.http.services.s.loadbalancer.server.port": "80"}
	for middleware, others := range chains {
		labels["traefik.http.middlewares."+middleware+".chain.middlewares"] = others
	}
	for middleware, prefix := range prefixes {
		labels["traefik.http.middlewares."+middleware+".addprefix.prefix"] = prefix
	}
	return &Container{ID: name, Name: name, Labels: labels, Running: true, NetworkMode: "host"}
}

// TestComparisonsAreFew compares containers whose many middlewares share a long chain and differ in the end: the
// number of comparisons is linear in the number of middlewares.
func TestComparisonsAreFew(t *testing.T) {
	const length, containers = 100, 3
	var list []*Container
	for i := range containers {
		chains := map[string]string{}
		for n := range length {
			chains[fmt.Sprint("t", n)] = fmt.Sprint("t", n+1)
			chains[fmt.Sprint("p", n)] = "t0,bad"
		}
		list = append(list, withChains(fmt.Sprint("c", i), chains,
			map[string]string{fmt.Sprint("t", length): "/a", "bad": fmt.Sprint("/", i)}))
	}
	k, compared := kindNamed(middleware), 0
	same := k.same
	k.same = func(a, b any) bool {
		compared++
		return same(a, b)
	}
	defer func() { k.same = same }()
	NewDocker(DockerOptions{}).Config(list)
	const names, pairs = 2*length + 2, containers * (containers - 1) / 2
	if compared == 0 || compared > 2*names*pairs {
		t.Errorf("%d comparisons of %d pairs of %d names, want at most 2 of each", compared, pairs, names)
	}
}

// TestEqualInCycles compares random chains, which can refer to themselves, with a model: pairs are equal unless
// their values or what they refer to differ.
func TestEqualInCycles(t *testing.T) {
	const names = 6
	differing := 0
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 0))
		var chains [names][2]int
		for i := range chains {
			chains[i] = [2]int{random.IntN(names), random.IntN(names)}
		}
		prefixes := [2][names]string{}
		var list []*Container
		for c := range prefixes {
			refer, prefix := map[string]string{}, map[string]string{}
			for i := range names {
				switch name := fmt.Sprint("m", i); {
				case i > 3:
					prefixes[c][i] = "/" + strconv.Itoa(random.IntN(2))
					prefix[name] = prefixes[c][i]
				default:
					refer[name] = fmt.Sprintf("m%d,m%d", chains[i][0], chains[i][1])
				}
			}
			list = append(list, withChains(fmt.Sprint("c", c), refer, prefix))
		}
		equal := [names]bool{}
		for i := range equal {
			equal[i] = prefixes[0][i] == prefixes[1][i]
		}
		for range names {
			for i := range 4 {
				equal[i] = equal[i] && equal[chains[i][0]] && equal[chains[i][1]]
			}
		}
		d := NewDocker(DockerOptions{})
		d.Config(list)
		for i, want := range equal {
			all := d.last.all(key{kindNamed(middleware), fmt.Sprint("m", i)})
			if got := d.last.equal(all[0], all[1]); got != want {
				t.Errorf("seed %d: m%d is equal: %v, want %v", seed, i, got, want)
			}
			if !want {
				differing++
			}
		}
	}
	if differing == 0 {
		t.Error("no pair differs")
	}
}
