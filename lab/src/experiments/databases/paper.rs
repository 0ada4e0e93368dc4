//! MemOpLight's measurements: tables IV, VI and VII, as printed. The machine had 2 x 16 cores, 3 GB for all
//! containers and databases of 4 GB, with mysql 5.7 on Linux 4.19.

use crate::policy::Policy;

/// A row of a published table: a mechanism and its values, in the table's order.
pub type Row = (Policy, &'static [f64]);

/// Table IV: median transactions per second; A and B for each phase in turn, without the stopped A.
#[rustfmt::skip]
pub const TABLE_IV: &[Row] = &[
    (Policy::Conventional, &[
        1053.0, 1043.0, 1374.0, 196.0, 1054.0, 1168.0,
        195.0, 197.0, 1195.0, 1145.0, 1751.0]),
    (Policy::Max, &[
        1290.0, 894.0, 1411.0, 196.0, 1314.0, 968.0,
        196.0, 660.0, 1358.0, 978.0, 962.0]),
    (Policy::Soft, &[
        1268.0, 879.0, 1423.0, 197.0, 1299.0, 969.0,
        196.0, 794.0, 1360.0, 970.0, 974.0]),
    (Policy::Memoplight, &[
        1351.0, 933.0, 1670.0, 195.0, 1362.0, 999.0,
        196.0, 197.0, 1370.0, 1036.0, 1723.0]),
];

/// Table VI: millions of transactions of A to H, and the total.
#[rustfmt::skip]
pub const TABLE_VI: &[Row] = &[
    (Policy::Conventional, &[15.2, 14.5, 17.3, 11.9, 18.7, 15.9, 8.8, 10.3, 112.6]),
    (Policy::Max, &[13.6, 13.8, 13.8, 8.5, 14.9, 9.9, 4.6, 6.8, 85.9]),
    (Policy::Soft, &[17.1, 17.4, 17.6, 12.6, 17.5, 13.4, 7.3, 9.5, 112.4]),
    (Policy::Memoplight, &[17.5, 17.3, 18.4, 13.7, 20.2, 16.8, 8.6, 10.1, 122.6]),
];

/// Table VII: percent of the time in which A to H are satisfied, and on average.
#[rustfmt::skip]
pub const TABLE_VII: &[Row] = &[
    (Policy::Conventional, &[42.0, 23.0, 8.0, 35.0, 69.0, 39.0, 62.0, 71.0, 44.0]),
    (Policy::Max, &[60.0, 35.0, 5.0, 37.0, 73.0, 15.0, 53.0, 35.0, 39.0]),
    (Policy::Soft, &[56.0, 42.0, 11.0, 35.0, 64.0, 16.0, 53.0, 32.0, 39.0]),
    (Policy::Memoplight, &[58.0, 44.0, 42.0, 52.0, 76.0, 53.0, 67.0, 67.0, 57.0]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_printed_totals_follow_from_the_printed_rows() {
        for (policy, row) in TABLE_VI {
            let (total, parts) = row.split_last().unwrap();
            let sum: f64 = parts.iter().sum();
            assert!((sum - total).abs() < 0.5, "{}: {sum}", policy.name());
        }
        for (policy, row) in TABLE_VII {
            let (mean, parts) = row.split_last().unwrap();
            let of_parts = parts.iter().sum::<f64>() / parts.len() as f64;
            assert!(
                (of_parts - mean).abs() < 1.0,
                "{}: {of_parts}",
                policy.name()
            );
        }
    }
}
