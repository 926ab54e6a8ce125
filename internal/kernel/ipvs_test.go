package kernel

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"fairlead/internal/kernel/ipvs"
	"fairlead/internal/model"
	"fairlead/internal/plan"

	"golang.org/x/sys/unix"
)

// TestErrorWithoutIPVS expects advice in the error if the kernel has no IPVS.
func TestErrorWithoutIPVS(t *testing.T) {
	h := openTestHost(t)
	service := plan.IPVSService{Proto: model.UDP, At: netip.MustParseAddrPort("[2001:db8::80]:53"), Scheduler: "rr",
		Forward: model.ForwardNAT, Reals: []plan.Backend{{At: netip.MustParseAddrPort("10.0.0.1:80"), Weight: 1}}}
	err := h.Set(service)
	var none *ipvs.NotSupportedError
	switch {
	case errors.As(err, &none):
		if !strings.Contains(err.Error(), "modprobe ip_vs") {
			t.Errorf("error without advice: %v", err)
		}
	case err != nil && !errors.Is(err, unix.ENOENT): // the scheduler's module is missing
		t.Error(err)
	}
	if err := h.Del(service); err != nil {
		t.Errorf("remove a missing service: %v", err)
	}
	if found, err := h.Observe(plan.Plan{service}, nil); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
}

func TestIPVSReleases(t *testing.T) {
	for release, want := range map[string]bool{"5.8.0-63-generic": false, "4.18.0": false, "5.9.0": true,
		"5.10.0-28-amd64": true, "6.1.0-56-cloud-amd64": true, "odd": true} {
		if got := since(release, plan.FeatureIPVS); got != want {
			t.Errorf("release %s supports the feature: %t", release, got)
		}
	}
}
