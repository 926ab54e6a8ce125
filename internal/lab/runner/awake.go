package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// latencyDevice takes a bound in µs on how long an idle CPU may need to wake
// up, and keeps it for as long as the file stays open: it is gone with the
// process, however that ends (Documentation/power/pm_qos_interface.rst).
const latencyDevice = "/dev/cpu_dma_latency"

// keepAwake has idle CPUs poll instead of sleep while the returned file is
// open. To wake a sleeping CPU takes tens of µs, in a virtual machine more
// than the longest path; whatever keeps a CPU awake by accident, a proxy say,
// then looks faster than nothing at all. The second value says for the
// report what was done.
func keepAwake() (*os.File, string) {
	f, err := os.OpenFile(latencyDevice, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Sprintf("CPUs sleep when idle: %v", err)
	}
	if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, 0)); err != nil {
		return nil, fmt.Sprintf("CPUs sleep when idle: %v", errors.Join(err, f.Close()))
	}
	return f, "0 µs while measuring: idle CPUs poll"
}
