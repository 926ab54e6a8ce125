package kernel

import (
	"slices"
	"testing"
	"time"

	"fairlead/internal/model"
	"fairlead/internal/plan"
)

// large returns a service whose change needs a transaction of its own.
func large(name, vip string) plan.NFTService {
	return with(served(name, vip, model.MaglevHashing, "10.0.0.2:8080", "10.0.0.3:8080"),
		func(s *plan.NFTService) { s.Ring = slices.Repeat([]uint16{0, 1}, 25_500) })
}

// turned returns a service in which each bucket has the other real server.
func turned(s plan.NFTService) plan.NFTService {
	s.Ring = slices.Repeat([]uint16{1, 0}, len(s.Ring)/2)
	return s
}

// TestSplitTransactions changes services in several transactions, with other elements in the first one. What a daemon
// that was killed between two transactions has done is completed, and repeated steps change nothing.
func TestSplitTransactions(t *testing.T) {
	h := openTestHost(t)
	a, b := large("a", "192.0.2.1:80"), large("b", "192.0.2.2:80")
	elements := plan.Plan{plan.Table{}, plan.Member{Set: plan.SetLinks, Link: "web"}}
	want := append(services(a, b), elements...)
	// It is killed behind the first transaction.
	h.reach(t, nil, append(services(a), elements...))
	found, err := h.Observe(nil, want)
	if err != nil {
		t.Fatal(err)
	}
	missing := plan.Diff(found, want)
	if len(missing) != 1 {
		t.Errorf("after the first transaction these steps are missing:\n%s", plan.Text(missing))
	}
	h.reach(t, found, want)
	const count = "nft --terse list ruleset | grep -c 'comment'" // terse: without the buckets of the services
	rules := h.run(t, "sh", "-c", count)
	all := plan.Diff(nil, want)
	if err := h.nft.Transact(all); err != nil {
		t.Fatalf("all steps once more: %v", err)
	}
	h.holds(t, want)
	if again := h.run(t, "sh", "-c", count); again != rules {
		t.Errorf("repeated steps have added rules: %s, before %s", again, rules)
	}
}

// TestFrontendsAreExchanged exchanges the frontends of services that are so large that each would have a transaction of
// its own, and gives a frontend of a service that is removed to another.
func TestFrontendsAreExchanged(t *testing.T) {
	h := openTestHost(t)
	a, b, c := large("a", "192.0.2.1:80"), large("b", "192.0.2.2:80"), large("c", "192.0.2.3:80")
	have := services(a, b, c)
	h.reach(t, nil, have)
	nextA, nextB := turned(a), turned(b)
	nextA.Frontends, nextB.Frontends = b.Frontends, a.Frontends
	next := services(nextA, nextB, turned(c))
	h.reach(t, have, next)
	last := turned(turned(c))
	last.Frontends = append(slices.Clone(c.Frontends), nextB.Frontends...)
	h.reach(t, next, services(nextA, last))
}

// TestFailedTransactionBehindAnother lets the second transaction fail: what the first one has changed stays as it is.
func TestFailedTransactionBehindAnother(t *testing.T) {
	h := openTestHost(t)
	persistent := func(s *plan.NFTService) { s.Persistence = 5 * time.Minute }
	a, b := with(large("a", "192.0.2.1:80"), persistent), with(large("b", "192.0.2.2:80"), persistent)
	have := services(a, b)
	h.reach(t, nil, have)
	// One of the two real servers leaves.
	nextA, nextB := a, b
	for _, s := range []*plan.NFTService{&nextA, &nextB} {
		s.Backends, s.Ring = s.Backends[1:], make([]uint16, len(s.Ring))
	}
	want := services(nextA, nextB)
	h.run(t, "nft", "flush map inet "+plan.ServicesTable+" "+b.Reals()) // its buckets cannot be deleted
	if err := h.nft.Transact(plan.Diff(have, want)); err == nil {
		t.Fatal("the second transaction does not fail")
	}
	found, err := h.Observe(want, want)
	if err != nil {
		t.Fatal(err)
	}
	missing := plan.Diff(found, want)
	if len(missing) != 1 || missing[0].Object.Key() != nextB.Key() {
		t.Errorf("steps that are missing, want those of the second service alone:\n%s", plan.Text(missing))
	}
	h.reach(t, found, want)
}
