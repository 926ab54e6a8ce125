package kernel

import (
	"testing"

	"fairlead/internal/kernel/kerneltest"
	"fairlead/internal/kernel/netns"
)

// TestReadersKeepHandlesOfApplier calls every reader while a plan is being applied
// in a sandbox.
func TestReadersKeepHandlesOfApplier(t *testing.T) {
	h := openTestHost(t)
	sandbox := markedSandbox(t)
	inside, err := h.links.At(sandbox.Path())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.links.At(""); err != nil {
		t.Fatal(err)
	}
	inspections := map[string]func() error{
		"Inspect":         func() error { _, err := h.Inspect().Inside(sandbox.Path()); return err },
		"DescribeSandbox": func() error { _, err := h.Inspect().DescribeSandbox(sandbox.Path()); return err },
		"NetLinks":        func() error { _, err := h.rtnl.NetLinks(); return err },
		"NamespaceID":     func() error { h.rtnl.NamespaceID(sandbox.Path()); return nil },
		"LinkTraffic":     func() error { _, err := h.Inspect().LinkTraffic(nil); return err },
		"EBPFState":       func() error { _, err := h.ebpf.State(); return err },
		"Trace": func() error {
			tracer, err := h.nft.Trace(nil)
			if err != nil {
				return err
			}
			return tracer.Close()
		},
		"RenewHost": h.ebpf.RenewHost,
	}
	before := openFiles(t)
	for name, inspect := range inspections {
		if err := inspect(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := inside.LinkByName("mark"); err != nil {
			t.Fatalf("after %s, the handle of the applier is closed: %v", name, err)
		}
		if now, err := h.links.At(sandbox.Path()); err != nil || now != inside {
			t.Fatalf("after %s, the applier has another handle: %v", name, err)
		}
	}
	if now := openFiles(t); now > before {
		t.Errorf("%d open files, %d before", now, before)
	}
}

// markedSandbox returns a sandbox with a link that no other namespace has. A
// closed handle reads the caller's namespace, where the link is missing.
func markedSandbox(t *testing.T) *netns.Namespace {
	sandbox := kerneltest.Netns(t)
	(&Host{ns: sandbox}).run(t, "ip", "link", "add", "mark", "type", "bridge")
	return sandbox
}

// TestReleaseKeepsHandlesOfReaders calls Release, as the applier does at its end,
// while a reader has handles open.
func TestReleaseKeepsHandlesOfReaders(t *testing.T) {
	h := openTestHost(t)
	sandbox := markedSandbox(t)
	h.run(t, "ip", "link", "add", "ours", "type", "bridge")
	before := openFiles(t)
	reader, err := h.rtnl.Copy()
	if err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{sandbox.Path(): "mark", "": "ours"} {
		if _, err := reader.LinkByName(path, name); err != nil {
			t.Fatal(err)
		}
		h.Release()
		if _, err := reader.LinkByName(path, name); err != nil {
			t.Errorf("the reader cannot find %s: %v", name, err)
		}
	}
	reader.Release()
	if now := openFiles(t); now != before+1 { // the handle of the host's namespace stays
		t.Errorf("%d open files, %d before", now, before)
	}
}
