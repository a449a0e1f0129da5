import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.apache.beam.sdk.Pipeline;
import org.apache.beam.sdk.extensions.python.PythonExternalTransform;
import org.apache.beam.sdk.io.TextIO;
import org.apache.beam.sdk.options.PipelineOptionsFactory;
import org.apache.beam.sdk.options.PortablePipelineOptions;
import org.apache.beam.sdk.options.Validation.Required;
import org.apache.beam.sdk.schemas.Schema;
import org.apache.beam.sdk.transforms.Create;
import org.apache.beam.sdk.transforms.ToJson;
import org.apache.beam.sdk.values.PBegin;
import org.apache.beam.sdk.values.PCollection;
import org.apache.beam.sdk.values.Row;

/** Releases counts of ages with a transform of beam_dp, and reads them back as rows. */
public class CountAges {
  private static final Schema PEOPLE =
      Schema.builder().addInt64Field("person_id").addInt64Field("age").build();

  /** Where the transforms of Python are, and where the results go. */
  public interface Options extends PortablePipelineOptions {
    @Required
    String getExpansionService();

    void setExpansionService(String address);

    @Required
    String getRelease();

    void setRelease(String directory);

    @Required
    String getRows();

    void setRows(String file);
  }

  public static void main(String[] args) {
    release(PipelineOptionsFactory.fromArgs(args).withValidation().as(Options.class));
    read(PipelineOptionsFactory.fromArgs(args).withValidation().as(Options.class));
  }

  private static void release(Options options) {
    Pipeline pipeline = Pipeline.create(options);
    // Any bounded rows with a schema, such as those of JdbcIO or BigQueryIO. Here a few stand for them.
    List<Row> people =
        LongStream.range(0, 500)
            .mapToObj(id -> Row.withSchema(PEOPLE).addValues(id, id % 100).build())
            .collect(Collectors.toList());
    pipeline
        .apply(Create.of(people).withRowSchema(PEOPLE))
        .apply(
            PythonExternalTransform.<PCollection<Row>, PCollection<Row>>from(
                    "beam_dp.yaml.ReleaseIntervals", options.getExpansionService())
                .withKwarg("domain", "{\"age\": 100}")
                .withKwarg("attribute", "age")
                .withKwarg("epsilon", 1.0)
                .withKwarg("delta", 0.0)
                .withKwarg("neighboring", "add_or_remove_one")
                .withKwarg("privacy_unit", "person_id")
                .withKwarg("max_records_per_unit", 1)
                .withKwarg("output", options.getRelease()));
    run(pipeline);
  }

  private static void read(Options options) {
    Pipeline pipeline = Pipeline.create(options);
    pipeline
        .apply(
            PythonExternalTransform.<PBegin, PCollection<Row>>from(
                    "beam_dp.yaml.ReadRows", options.getExpansionService())
                .withKwarg("release", options.getRelease()))
        .apply(ToJson.of())
        .apply(TextIO.write().to(options.getRows()).withoutSharding());
    run(pipeline);
  }

  private static void run(Pipeline pipeline) {
    // The steps of Java run in this process. Set earlier, Beam 2.65 could not add steps of Python.
    pipeline.getOptions().as(Options.class).setDefaultEnvironmentType("LOOPBACK");
    pipeline.run().waitUntilFinish();
  }
}
