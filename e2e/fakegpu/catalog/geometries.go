// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package catalog

// The geometries below are what `nvidia-smi mig -lgip` and `-lgipp` print on
// the real parts, as NVIDIA's MIG user guide and published output show them.
// go-nvml's own mock definitions agree for A100 and A30; for Hopper and
// Blackwell they count memory slices as if they were compute slices (3g at
// {0,4}:3 instead of {0,4}:4), which no real part does. The package's test
// names every difference. For B200 no such output was found: its memory sizes
// are the documented eighths of the total less what the other parts lose, its
// SM counts go-nvml's.

var everySlice = []int{0, 1, 2, 3, 4, 5, 6}

// profile fills in what the seven-slice parts have in common: ids and
// placements are the same from A100 to B200.
func profile(slot int, name string, instances, sms int, memoryMiB uint64, engines [4]int) Profile {
	p := Profile{
		Slot: slot, Name: name, Instances: instances, Multiprocessors: sms, MemoryMiB: memoryMiB,
		Engines: Engines{Copy: engines[0], Decoders: engines[1], JPEG: engines[2], OFA: engines[3]},
	}
	switch slot {
	case Slot1Slice:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 19, 1, 1, everySlice
	case Slot1SliceRev1:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 20, 1, 1, everySlice
	case Slot1SliceRev2:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 15, 1, 2, []int{0, 2, 4, 6}
	case Slot2Slice:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 14, 2, 2, []int{0, 2, 4}
	case Slot3Slice:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 9, 3, 4, []int{0, 4}
	case Slot4Slice:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 5, 4, 4, []int{0}
	case Slot7Slice:
		p.ID, p.ComputeSlices, p.MemorySlices, p.Starts = 0, 7, 8, []int{0}
	}
	return p
}

func sevenSlices(profiles ...Profile) *Geometry {
	return &Geometry{MemorySlices: 8, ComputeSlices: 7, Profiles: profiles}
}

// Engines are {copy, decode, jpeg, optical flow}.
var (
	a30MIG = &Geometry{MemorySlices: 4, ComputeSlices: 4, Profiles: []Profile{
		{Slot: Slot1Slice, ID: 14, Name: "1g.6gb", ComputeSlices: 1, MemorySlices: 1, Instances: 4,
			Multiprocessors: 14, MemoryMiB: 5952, Engines: Engines{Copy: 1}, Starts: []int{0, 1, 2, 3}},
		{Slot: Slot1SliceRev1, ID: 21, Name: "1g.6gb+me", ComputeSlices: 1, MemorySlices: 1, Instances: 1,
			Multiprocessors: 14, MemoryMiB: 5952, Engines: Engines{Copy: 1, Decoders: 1, JPEG: 1, OFA: 1}, Starts: []int{0, 1, 2, 3}},
		{Slot: Slot2Slice, ID: 5, Name: "2g.12gb", ComputeSlices: 2, MemorySlices: 2, Instances: 2,
			Multiprocessors: 28, MemoryMiB: 11968, Engines: Engines{Copy: 2, Decoders: 2}, Starts: []int{0, 2}},
		{Slot: Slot2SliceRev1, ID: 6, Name: "2g.12gb+me", ComputeSlices: 2, MemorySlices: 2, Instances: 1,
			Multiprocessors: 28, MemoryMiB: 11968, Engines: Engines{Copy: 2, Decoders: 2, JPEG: 1, OFA: 1}, Starts: []int{0, 2}},
		{Slot: Slot4Slice, ID: 0, Name: "4g.24gb", ComputeSlices: 4, MemorySlices: 4, Instances: 1,
			Multiprocessors: 56, MemoryMiB: 24064, Engines: Engines{Copy: 4, Decoders: 4, JPEG: 1, OFA: 1}, Starts: []int{0}},
	}}

	a100MIG40 = sevenSlices(
		profile(Slot1Slice, "1g.5gb", 7, 14, 4864, [4]int{1, 0, 0, 0}),
		profile(Slot1SliceRev1, "1g.5gb+me", 1, 14, 4864, [4]int{1, 1, 1, 1}),
		profile(Slot1SliceRev2, "1g.10gb", 4, 14, 9856, [4]int{1, 1, 0, 0}),
		profile(Slot2Slice, "2g.10gb", 3, 28, 9856, [4]int{2, 1, 0, 0}),
		profile(Slot3Slice, "3g.20gb", 2, 42, 19968, [4]int{3, 2, 0, 0}),
		profile(Slot4Slice, "4g.20gb", 1, 56, 19968, [4]int{4, 2, 0, 0}),
		profile(Slot7Slice, "7g.40gb", 1, 98, 40192, [4]int{7, 5, 1, 1}),
	)

	a100MIG80 = sevenSlices(
		profile(Slot1Slice, "1g.10gb", 7, 14, 9728, [4]int{1, 0, 0, 0}),
		profile(Slot1SliceRev1, "1g.10gb+me", 1, 14, 9728, [4]int{1, 1, 1, 1}),
		profile(Slot1SliceRev2, "1g.20gb", 4, 14, 19968, [4]int{1, 1, 0, 0}),
		profile(Slot2Slice, "2g.20gb", 3, 28, 19968, [4]int{2, 1, 0, 0}),
		profile(Slot3Slice, "3g.40gb", 2, 42, 40192, [4]int{3, 2, 0, 0}),
		profile(Slot4Slice, "4g.40gb", 1, 56, 40192, [4]int{4, 2, 0, 0}),
		profile(Slot7Slice, "7g.80gb", 1, 98, 80640, [4]int{7, 5, 1, 1}),
	)

	h100MIG = sevenSlices(
		profile(Slot1Slice, "1g.10gb", 7, 16, 9984, [4]int{1, 1, 1, 0}),
		profile(Slot1SliceRev1, "1g.10gb+me", 1, 16, 9984, [4]int{1, 1, 1, 1}),
		profile(Slot1SliceRev2, "1g.20gb", 4, 26, 20096, [4]int{1, 1, 1, 0}),
		profile(Slot2Slice, "2g.20gb", 3, 32, 20096, [4]int{2, 2, 2, 0}),
		profile(Slot3Slice, "3g.40gb", 2, 60, 40448, [4]int{3, 3, 3, 0}),
		profile(Slot4Slice, "4g.40gb", 1, 64, 40448, [4]int{4, 4, 4, 0}),
		profile(Slot7Slice, "7g.80gb", 1, 132, 81152, [4]int{8, 7, 7, 1}),
	)

	h200MIG = sevenSlices(
		profile(Slot1Slice, "1g.18gb", 7, 16, 16384, [4]int{1, 1, 1, 0}),
		profile(Slot1SliceRev1, "1g.18gb+me", 1, 16, 16384, [4]int{1, 1, 1, 1}),
		profile(Slot1SliceRev2, "1g.35gb", 4, 26, 33280, [4]int{1, 1, 1, 0}),
		profile(Slot2Slice, "2g.35gb", 3, 32, 33280, [4]int{2, 2, 2, 0}),
		profile(Slot3Slice, "3g.71gb", 2, 60, 71168, [4]int{3, 3, 3, 0}),
		profile(Slot4Slice, "4g.71gb", 1, 64, 71168, [4]int{4, 4, 4, 0}),
		profile(Slot7Slice, "7g.141gb", 1, 132, 143360, [4]int{8, 7, 7, 1}),
	)

	b200MIG = sevenSlices(
		profile(Slot1Slice, "1g.23gb", 7, 18, 22656, [4]int{2, 1, 1, 0}),
		profile(Slot1SliceRev1, "1g.23gb+me", 1, 18, 22656, [4]int{2, 1, 1, 1}),
		profile(Slot1SliceRev2, "1g.45gb", 4, 18, 45440, [4]int{2, 1, 1, 0}),
		profile(Slot2Slice, "2g.45gb", 3, 36, 45440, [4]int{3, 2, 2, 0}),
		profile(Slot3Slice, "3g.90gb", 2, 54, 91136, [4]int{6, 3, 3, 0}),
		profile(Slot4Slice, "4g.90gb", 1, 72, 91136, [4]int{8, 4, 4, 0}),
		profile(Slot7Slice, "7g.180gb", 1, 126, 182528, [4]int{16, 7, 7, 1}),
	)
)
