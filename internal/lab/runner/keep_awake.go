package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// latencyDevice accepts the maximum wake-up latency of idle CPUs in µs. The kernel
// applies it while the file is open, so at most until the process ends
// (Documentation/power/pm_qos_interface.rst).
const latencyDevice = "/dev/cpu_dma_latency"

// KeepAwake makes idle CPUs poll instead of sleep while the returned file is open.
// Waking a sleeping CPU takes tens of µs; in a virtual machine this is more than the
// longest path takes. A path that keeps a CPU awake by accident, such as a proxy,
// would then be faster than the host itself. The second value describes the setting
// for the report.
func KeepAwake() (*os.File, string) {
	f, err := os.OpenFile(latencyDevice, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Sprintf("CPUs sleep when idle: %v", err)
	}
	if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, 0)); err != nil {
		return nil, fmt.Sprintf("CPUs sleep when idle: %v", errors.Join(err, f.Close()))
	}
	return f, "0 µs while measuring: idle CPUs poll"
}
